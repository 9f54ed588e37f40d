"""A proxy with keys of its own, and one that sends the provider a key of its own."""

import json
import urllib.error
import urllib.request

import pytest
from plain_http import variables
from waiting import PATIENCE

from pager.log.events import AttemptFailed, SessionOpened, encode
from pager.log.stores import open_store
from pager.testing.scripted import Fail, Say, Script


def ask(root, key, path="/v1/chat/completions"):
    body = json.dumps({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}).encode()
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    with urllib.request.urlopen(urllib.request.Request(root + path, body, headers), timeout=PATIENCE) as response:
        return response.status


def test_clients_show_the_proxys_key_and_the_provider_sees_only_its_own(scripted, start_proxy, tmp_path):
    scripted.play(Script([Say("fine")], repeat=True))
    flags = ["--identity-keys", '{ red = "RED_KEY", blue = "BLUE_KEY" }', "--upstream-api-key-env", "PROVIDER_KEY"]
    with variables(RED_KEY="pk-red", BLUE_KEY="pk-blue", PROVIDER_KEY="sk-provider"), start_proxy(*flags) as proxy:
        assert ask(proxy.root, "pk-red") == ask(proxy.root, "pk-blue") == 200
        assert ask(proxy.root, "pk-red", "/v1/messages") == 200
        for path in ("/v1/chat/completions", "/v1/messages", "/v1/models"):
            with pytest.raises(urllib.error.HTTPError) as refused:
                ask(proxy.root, "pk-green", path)
            assert refused.value.code == 401
            assert "one of its own keys" in json.loads(refused.value.read())["error"]["message"]
            refused.value.close()
    seen = [dict(received.headers) for received in scripted.received]
    assert len(seen) == 3
    assert all("pk-" not in json.dumps(headers) for headers in seen)
    assert [headers.get("authorization") or headers.get("x-api-key") for headers in seen] == [
        "Bearer sk-provider",
        "Bearer sk-provider",
        "sk-provider",
    ]
    store = open_store(f"sqlite:{tmp_path / 'data'}")
    opened = [row.event.tenant for row in store.events() if isinstance(row.event, SessionOpened)]
    store.close()
    assert opened == ["red", "blue", "red"]


def test_no_credential_is_ever_in_the_log(scripted, start_proxy, tmp_path):
    scripted.play(Script([Say("fine")], repeat=True))
    with start_proxy() as proxy:
        assert ask(proxy.root, "sk-very-secret") == 200
    store = open_store(f"sqlite:{tmp_path / 'data'}")
    store.close()
    files = b"".join(file.read_bytes() for file in (tmp_path / "data").iterdir())
    assert b"very-secret" not in files
    assert b"chat/completions" in files


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
def test_a_credential_that_the_provider_repeats_is_not_in_the_log(scripted, start_proxy, tmp_path, path):
    keys = ("sk-the-clients-own-0123456789", "qk-in-the-query-0123456789", "sk-provider-0123456789")
    error = json.dumps({"error": {"message": f"wrong keys: {' '.join(keys)}", "type": "authentication_error"}}).encode()
    scripted.play(Script([Fail(401, error)], repeat=True))
    with variables(OWN="sk-provider-0123456789"), start_proxy("--upstream-api-key-env", "OWN") as proxy:
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask(proxy.root, keys[0], f"{path}?key={keys[1]}")
        assert refused.value.read() == error
        refused.value.close()
    store = open_store(f"sqlite:{tmp_path / 'data'}")
    (failed,) = [row.event for row in store.events() if isinstance(row.event, AttemptFailed)]
    kept = store.blob(bytes.fromhex(failed.body))
    assert (failed.redacted, failed.size, len(kept)) == (sum(map(len, keys)), len(error), len(error))
    assert store.check().problems == ()
    logged = b"".join([encode(row.event) for row in store.events()] + [kept])
    store.close()
    files = b"".join(file.read_bytes() for file in (tmp_path / "data").iterdir() if file.is_file())
    for key in keys:
        assert key.encode() not in logged + files
    assert b"wrong keys: ****" in kept
