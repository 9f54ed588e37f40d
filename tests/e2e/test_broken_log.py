"""A log that can't be opened or written never stops a call, and says so loudly."""

import json
import os
import resource
import shutil
import subprocess
import sys
import urllib.request

import pytest
from waiting import PATIENCE

from pager.log.events import CallReceived
from pager.log.stores import open_store
from pager.testing.scripted import Say, Script


def ask(root, text="hello"):
    body = json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": text}]}).encode()
    request = urllib.request.Request(f"{root}/v1/chat/completions", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:
        return json.loads(response.read())["choices"][0]["message"]["content"]


def health(root):
    with urllib.request.urlopen(f"{root}/healthz", timeout=PATIENCE) as response:
        return json.loads(response.read())


def test_a_file_that_is_no_database_is_reported_and_calls_go_out(scripted, start_proxy, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "ctxpager.sqlite3").write_bytes(b"this is no database, and longer than a header of one" * 100)
    scripted.play(Script([Say("fine")], repeat=True))
    with start_proxy() as proxy:
        assert ask(proxy.root) == "fine"
        assert health(proxy.root)["status"] == "degraded"
    assert "SERVING WITHOUT A LOG" in (tmp_path / "data.log").read_text()
    assert (folder / "ctxpager.sqlite3").read_bytes().startswith(b"this is no database")


def test_a_disk_that_is_full_is_reported_and_calls_go_out_and_logging_resumes(scripted, start_proxy, tmp_path):
    scripted.play(Script([Say("fine")], repeat=True))
    with start_proxy() as proxy:
        assert ask(proxy.root) == "fine"
        soft, hard = resource.prlimit(proxy.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(proxy.process.pid, resource.RLIMIT_FSIZE, (2**16, hard))
        for number in range(5):
            assert ask(proxy.root, f"{number} {os.urandom(200_000).hex()}") == "fine"
        assert health(proxy.root)["log"]["failed_writes"] > 0
        told = health(proxy.root)["log"]["last_failure"]
        assert told.startswith("ctxpager.sqlite3 could not be")
        assert str(tmp_path) not in told
        resource.prlimit(proxy.process.pid, resource.RLIMIT_FSIZE, (soft, hard))
        failed = health(proxy.root)["log"]["failed_writes"]
        assert ask(proxy.root, "after") == "fine"
        assert ask(proxy.root, "after that") == "fine"
        assert health(proxy.root)["log"]["failed_writes"] == failed
    assert "NOT LOGGED" in (tmp_path / "data.log").read_text()
    checked = subprocess.run(
        [sys.executable, "-m", "pager.cli", "check", "--data-dir", str(tmp_path / "data")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout
    assert "clean" in checked.stdout


@pytest.mark.parametrize("what", ["the file", "the folder"])
def test_a_log_that_is_deleted_is_noticed_and_begun_anew(scripted, start_proxy, tmp_path, what):
    scripted.play(Script([Say("fine")], repeat=True))
    folder = tmp_path / "data"
    with start_proxy() as proxy:
        assert ask(proxy.root, "before") == "fine"
        assert health(proxy.root)["status"] == "ok"
        if what == "the file":
            (folder / "ctxpager.sqlite3").unlink()  # its write-ahead log stays
        else:
            shutil.rmtree(folder)
        assert health(proxy.root)["status"] == "degraded"
        assert not health(proxy.root)["log"]["open"]
        for number in range(5):
            assert ask(proxy.root, f"after {number}") == "fine"
        told = health(proxy.root)
        assert (told["status"], told["log"]["open"], told["log"]["begun_anew"]) == ("ok", True, 1)
        assert "deleted" in told["log"]["last_failure"]
        assert str(tmp_path) not in told["log"]["last_failure"]
    assert "THE LOG IS GONE" in (tmp_path / "data.log").read_text()
    store = open_store(f"sqlite:{folder}")
    calls = [row.event for row in store.events() if isinstance(row.event, CallReceived)]
    assert store.check().problems == ()
    store.close()
    assert len(calls) == 5


@pytest.mark.parametrize("body", [b"", b"not json", b"[]", b'{"model": "m"}', b'{"messages": 3, "messages": 4}'])
def test_a_body_that_cannot_be_read_goes_out_as_it_came(scripted, proxy, body):
    scripted.play(Script([Say("fine")], repeat=True))
    before = len(scripted.received)
    request = urllib.request.Request(f"{proxy.root}/v1/chat/completions", body, {"content-type": "application/json"})
    try:
        urllib.request.urlopen(request, timeout=PATIENCE).read()
    except urllib.error.HTTPError as error:
        error.read()
        error.close()
    assert scripted.received[before].body == body
