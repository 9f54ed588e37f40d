"""Shared fixtures: the scripted model in a thread of its own, and the real proxy in front of it."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from forked import Forked, end_all
from hypothesis import settings
from laws import LIGHT
from waiting import PATIENCE, wait_until

from pager.testing.scripted import Received, Script, ScriptedModel

# A shell that starts the tests in the background has them ignore Ctrl-C, and so would every program that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.load_profile(LIGHT)  # unless --hypothesis-profile names another

# Headers that belong to one hop, and those that a client makes up anew for every request.
OF_THE_HOP = {"host", "connection", "keep-alive", "transfer-encoding", "content-length", "te", "trailer", "upgrade"}
OF_THE_MOMENT = {"idempotency-key", "traceparent"}


class Backstage:
    """An event loop in a thread, so that blocking clients and asynchronous servers live in one process."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(PATIENCE)

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(PATIENCE)
        self.loop.close()


@dataclass(frozen=True)
class Proxy:
    """A running proxy: its address without a path, and its data folder."""

    root: str
    data_dir: Path
    process: Forked

    @property
    def url(self) -> str:
        return f"{self.root}/v1"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _healthy(root: str) -> bool:
    """Whether it answers; beyond loopback it says no more without a key."""
    try:
        with urllib.request.urlopen(f"{root}/healthz", timeout=PATIENCE) as response:
            return response.status == 200
    except urllib.error.HTTPError as error:
        with error:
            return error.code == 401
    except (OSError, urllib.error.URLError):
        return False


@contextmanager
def running_proxy(upstream: str, data_dir: Path, *flags: str) -> Iterator[Proxy]:
    """The real command, on a free port, until the block ends."""
    port = free_port()
    command = ["serve", "--port", str(port), "--upstream", upstream]
    # An empty file of settings, so that none of the user's own has a say.
    settings, log = data_dir.with_suffix(".toml"), data_dir.with_suffix(".log")
    settings.touch()
    command += ["--data-dir", str(data_dir), "--policy", "keep_all", "--config", str(settings), *flags]
    env = {key: value for key, value in os.environ.items() if not key.startswith("CTXPAGER_")}
    process = Forked(command, log, env)
    root = f"http://127.0.0.1:{port}"
    try:
        assert wait_until(lambda: process.poll() is not None or _healthy(root)), "the proxy does not answer"
        assert process.poll() is None, log.read_text()
        yield Proxy(root, data_dir, process)
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="session", autouse=True)
def _no_process_left():
    yield
    end_all()


@pytest.fixture(scope="session")
def running():
    """Starts a proxy for longer than a test: ``running(upstream, data_dir, *flags)``, as a context manager."""
    return running_proxy


@pytest.fixture(scope="session")
def backstage() -> Iterator[Backstage]:
    stage = Backstage()
    yield stage
    stage.close()


@pytest.fixture(scope="session")
def _model(backstage) -> Iterator[ScriptedModel]:
    model = ScriptedModel(Script())
    backstage.run(model.__aenter__())
    yield model
    backstage.run(model.__aexit__())


@pytest.fixture
def scripted(request, _model) -> Iterator[ScriptedModel]:
    """The scripted model; ``play`` begins a script. No test that is not marked so may have it refresh a prompt."""
    _model.play(Script())
    yield _model
    if request.node.get_closest_marker("keeps_warm") is None:
        assert not any(map(is_refresh, _model.received)), "the proxy has sent what no client asked for"


@pytest.fixture(scope="session")
def _proxy(_model, tmp_path_factory) -> Iterator[Proxy]:
    with running_proxy(_model.url, tmp_path_factory.mktemp("proxy") / "data") as proxy:
        yield proxy


@pytest.fixture
def proxy(_proxy, scripted) -> Proxy:
    """The proxy in front of the scripted model."""
    return _proxy


@pytest.fixture
def start_proxy(scripted, tmp_path):
    """Starts a proxy of one's own with further flags, as a context manager."""
    return lambda *flags: running_proxy(scripted.url, tmp_path / "data", *flags)


def is_refresh(received: Received) -> bool:
    """Whether a request only keeps its prompt in the cache: on Messages there is a form for it."""
    return re.search(rb'"max_tokens":\s*0[,}]', received.body) is not None


def end_to_end(received: Received) -> tuple[str, str, list[tuple[str, str]], bytes]:
    """What of a request must reach the provider as the client sent it."""
    kept = [(name.lower(), value) for name, value in received.headers]
    left_out = OF_THE_HOP | OF_THE_MOMENT
    return received.method, received.target, sorted(pair for pair in kept if pair[0] not in left_out), received.body


@pytest.fixture
def both(scripted, proxy):
    """Plays a script twice, directly and through the proxy: the client and the provider must see no difference."""

    def play(script: Script, act: Callable[[str], Any]) -> Any:
        scripted.play(script)
        direct = act(scripted.root)
        expected = [end_to_end(received) for received in scripted.received]
        scripted.play(script)
        proxied = act(proxy.root)
        assert proxied == direct
        assert [end_to_end(received) for received in scripted.received] == expected
        return proxied

    return play


@pytest.fixture
def eventually():
    """Waits until something is true: ``assert eventually(lambda: ..., seconds)``."""
    return wait_until


@pytest.fixture
def told():
    """The headers of a response that are the provider's own: what a hop adds or sets for itself left out."""
    return lambda headers: sorted((k.lower(), v) for k, v in headers.items() if k.lower() not in {*OF_THE_HOP, "date"})


@pytest.fixture
def outcome(told):
    """What a client gets of a call that fails: its exception's type, status, headers and body."""

    def of(call: Callable[[], Any]) -> tuple[Any, ...]:
        try:
            call()
        except Exception as error:  # whatever the SDK raises is the subject
            response = getattr(error, "response", None)
            headers = told(response.headers) if response is not None else []
            return type(error), getattr(error, "status_code", None), headers, getattr(error, "body", None)
        raise AssertionError("the call did not fail")

    return of
