"""The door on the real proxy: real clients behind it, and what pages of strangers get."""

import json
import urllib.error
import urllib.request

import anthropic
import httpx2
import openai
import pytest
from plain_http import answer_to, variables

from pager.log.events import SessionOpened
from pager.log.stores import open_store
from pager.testing.scripted import Say, Script

EVIL = {"origin": "https://evil.example"}
REBOUND = {"host": "evil.example:8787"}


def chat(root, key="sk-test", **headers):
    with openai.OpenAI(base_url=f"{root}/v1", api_key=key, max_retries=0, default_headers=headers) as client:
        return client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hello"}])


def responses(root, **headers):
    with openai.OpenAI(base_url=f"{root}/v1", api_key="sk-test", max_retries=0, default_headers=headers) as client:
        return client.responses.create(model="m", input="hello")


def messages(root, **headers):
    with anthropic.Anthropic(base_url=root, api_key="sk-test", max_retries=0, default_headers=headers) as client:
        return client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "hello"}])


def get(root, path, **headers):
    request = urllib.request.Request(root + path, headers=headers)
    return answer_to(request)


@pytest.mark.parametrize("headers", [EVIL, REBOUND], ids=["origin", "host"])
@pytest.mark.parametrize(("ask", "sdk"), [(chat, openai), (responses, openai), (messages, anthropic)])
def test_a_strangers_page_gets_a_403_in_the_shape_of_its_dialect(scripted, proxy, headers, ask, sdk):
    scripted.play(Script([Say("fine")], repeat=True))
    ask(proxy.root)
    assert len(scripted.received) == 1
    with pytest.raises(sdk.PermissionDeniedError) as refused:
        ask(proxy.root, **headers)
    error = refused.value.response.json()
    assert error.get("type") == ("error" if sdk is anthropic else None)
    assert error["error"]["type"] == "permission_error"
    assert "evil.example" in error["error"]["message"]
    assert len(scripted.received) == 1


@pytest.mark.parametrize("path", ["/v1/models", "/healthz", "/metrics", "/", "/ui/api/sessions", "/v1/files"])
def test_no_route_is_open_to_strangers_pages(scripted, proxy, path):
    before = len(scripted.received)
    for headers in (EVIL, REBOUND):
        status, body = get(proxy.root, path, **headers)
        assert status == 403
        assert b"evil.example" in body
    assert len(scripted.received) == before


def test_an_app_in_a_browser_that_was_allowed_is_served(scripted, start_proxy):
    scripted.play(Script([Say("fine")], repeat=True))
    with start_proxy("--allowed-origins", '["http://localhost:3000"]') as proxy:
        assert chat(proxy.root, origin="http://localhost:3000").choices[0].message.content == "fine"
        with pytest.raises(openai.PermissionDeniedError):
            chat(proxy.root, origin="http://localhost:3001")


def test_beyond_this_machine_health_and_metrics_ask_for_a_key(scripted, start_proxy):
    flags = ["--host", "0.0.0.0", "--identity-keys", '{ red = "RED_KEY" }', "--upstream-api-key-env", "PROVIDER_KEY"]
    with variables(RED_KEY="pk-red", PROVIDER_KEY="sk-provider"), start_proxy(*flags) as proxy:
        for path in ("/healthz", "/metrics"):
            status, body = get(proxy.root, path)
            assert status == 401
            assert json.loads(body)["error"]["type"] == "authentication_error"
            assert get(proxy.root, path, authorization="Bearer pk-red")[0] == 200


def test_beyond_this_machine_the_same_account_header_is_not_the_same_tenant(scripted, start_proxy, tmp_path):
    scripted.play(Script([Say("fine")], repeat=True))
    shared = {"chatgpt-account-id": "acme", "x-session-id": "the-same"}
    with start_proxy("--host", "0.0.0.0", "--allow-open-bind") as proxy:
        for key in ("sk-victim", "sk-thief", "sk-victim"):
            chat(proxy.root, key, **shared)
    store = open_store(f"sqlite:{tmp_path / 'data'}")
    tenants = [row.event.tenant for row in store.events() if isinstance(row.event, SessionOpened)]
    store.close()
    assert len(tenants) == len(set(tenants)) == 2
    assert "acme" not in "".join(tenants)


def test_a_key_of_the_proxys_own_goes_to_no_provider_in_whichever_header_it_came(scripted, start_proxy):
    scripted.play(Script([Say("fine")], repeat=True))
    flags = ["--identity-keys", '{ red = "RED_KEY" }', "--upstream-api-key-env", "PROVIDER_KEY"]
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    with variables(RED_KEY="pk-red", PROVIDER_KEY="sk-provider"), start_proxy(*flags) as proxy:
        for name in ("authorization", "x-api-key", "api-key", "x-goog-api-key"):
            url = f"{proxy.url}/chat/completions"
            assert httpx2.post(url, json=body, headers={name: "pk-red"}, trust_env=False).status_code == 200
    assert len(scripted.received) == 4
    assert "pk-red" not in str([received.headers for received in scripted.received])
