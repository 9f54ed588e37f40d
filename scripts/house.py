"""Counts how easily the code can be found: crowded folders, shared class names, lines, modules one call touches.

    .venv/bin/python scripts/house.py            # this checkout
    .venv/bin/python scripts/house.py DIR        # another one, also one from before folders were layers
    .venv/bin/python scripts/house.py --names    # lists the shared names, and the module pairs that call both ways

The traced call is streamed, evicts one page and fetches it again in one hidden leg. It runs through ``ctxpager serve``
in this process, against a small provider in this script, so that the traced tree may look any way it likes.
"""

import argparse
import ast
import json
import os
import re
import signal
import socket
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

PACKAGES = ("pager", "policies", "instrumentation")
PLUG_IN_CLASSES = {"Dialect", "Scripted", "Store", "Importer"}  # loaded by name from each plug-in
OPTIMUM = re.compile(r"instrumentation/(optimum/|_optimum_|optimum\.py|(foresight|oracles|problem)\.py)")
PAGE = "".join(f"{number}: lantern {number * 7919} meadow {number * 104729}\n" for number in range(100))
SOON = ("--policy", "fifo_age", "--paging-policy-options", "{ age = 2, size = 500 }")
EVENT_LOOP = ("asyncio/runners.py", "asyncio/base_events.py")  # above these is what started the server
QUIET = 0.3  # seconds without a call of ours after which the traced call has ended, its log records included


def main() -> int:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tree", nargs="?", type=Path, default=Path(__file__).parents[1], help="checkout to count")
    parser.add_argument("--names", action="store_true", help="list shared class names and two-way module pairs")
    parser.add_argument("--no-trace", action="store_true", help="count the sources only; needs no dependency")
    options = parser.parse_args()
    tree = options.tree.resolve()
    _print_sources(tree, names=options.names)
    if not options.no_trace:
        _print_trace(_traced(tree), names=options.names)
    return 0


def _sources(tree: Path, pattern: str) -> list[Path]:
    return [path.relative_to(tree) for package in PACKAGES for path in sorted((tree / package).rglob(pattern))]


def _print_sources(tree: Path, *, names: bool) -> None:
    modules = _sources(tree, "*.py")
    folders = Counter(str(path.parent) for path in modules)
    lines = {path: (tree / path).read_text().count("\n") for path in modules + _sources(tree, "*.js")}
    javascript = sum(lines[path] for path in lines if path.suffix == ".js")
    optimum = sum(lines[path] for path in modules if OPTIMUM.match(str(path)))
    (crowded, most), *_ = folders.most_common(1)
    print(f"{'modules':<42} {len(modules):>6}  in {len(folders)} folders")
    print(f"{'most modules in one folder':<42} {most:>6}  {crowded}")
    classes = _classes(tree, modules)
    count = sum(len(places) for places in classes.values())
    shared = {name: places for name, places in classes.items() if len(places) > 1}
    sharing = sum(len(places) for name, places in shared.items() if name not in PLUG_IN_CLASSES)
    print(f"{'classes':<42} {count:>6}")
    print(f"{'classes that share a name':<42} {sharing:>6}  {sharing / count:.1%}; plug-ins' own aside")
    print(f"{'product lines, Python without the optimum':<42} {sum(lines.values()) - javascript - optimum:>6}")
    print(f"{'  the optimum':<42} {optimum:>6}")
    print(f"{'  JavaScript':<42} {javascript:>6}")
    for name in sorted(shared) if names else ():
        print(f"  {name}{' (plug-ins)' * (name in PLUG_IN_CLASSES)}: {', '.join(map(str, shared[name]))}")


def _classes(tree: Path, modules: list[Path]) -> dict[str, list[Path]]:
    """Where each class name is used; a leading underscore makes no other name."""
    classes = defaultdict(list)
    for path in modules:
        for node in ast.walk(ast.parse((tree / path).read_text())):
            if isinstance(node, ast.ClassDef):
                classes[node.name.lstrip("_")].append(path)
    return classes


def _print_trace(calls: Counter[tuple[str, str]], *, names: bool) -> None:
    modules = {module for _, module in calls}
    edges = {edge for edge in calls if edge[0] and edge[0] != edge[1]}
    pairs = sorted(edge for edge in edges if edge[0] < edge[1] and edge[::-1] in edges)
    crossings = sum(calls[edge] for edge in edges)
    print(f"{'modules that one traced call touches':<42} {len(modules):>6}")
    print(f"{'edges between them':<42} {len(edges):>6}  {crossings} of {sum(calls.values())} calls")
    print(f"{'module pairs that call each other both ways':<42} {len(pairs):>5}")
    for one, other in pairs if names else ():
        print(f"  {one} <> {other}: {calls[one, other]} and {calls[other, one]} calls")
    for module in sorted(modules) if names else ():
        print(f"  touched: {module}")


def _traced(tree: Path) -> Counter[tuple[str, str]]:
    """How often each module calls each other one in the traced call; the caller is empty where it is none of ours."""
    os.environ.update(COLUMNS="100", XDG_CONFIG_HOME=tempfile.gettempdir())
    sys.path.insert(0, str(tree))
    script = tomllib.loads((tree / "pyproject.toml").read_text())["project"]["scripts"]["ctxpager"]
    module, _, function = script.partition(":")
    serve = getattr(import_module(module), function)
    trace = _Trace(tree)
    threading.setprofile(trace.saw)
    sys.setprofile(trace.saw)
    failures: list[Exception] = []

    def play(port: int) -> None:
        try:
            _play(port, trace)
        except Exception as error:  # noqa: BLE001 - whatever it was, the server in the main thread must end
            failures.append(error)
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, lambda *_: None)  # uvicorn raises the signal again when it has ended
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nowhere:  # noqa: PTH123
        provider = ThreadingHTTPServer(("127.0.0.1", 0), _Provider)
        threading.Thread(target=provider.serve_forever, daemon=True).start()
        port = _free_port()
        upstream = f"http://127.0.0.1:{provider.server_port}/v1"
        threading.Thread(target=play, args=(port,), daemon=True).start()
        flags = ("--port", str(port), "--upstream", upstream, "--data-dir", folder, "--learn", "off", *SOON)
        os.chdir(folder)  # no ctxpager.toml
        with redirect_stdout(nowhere), redirect_stderr(nowhere):
            status = serve(["serve", *flags])
    sys.setprofile(None)
    threading.setprofile(None)
    if failures or not trace.calls:
        raise SystemExit(f"the traced call failed: {failures}; ctxpager serve ended with {status}")
    return trace.calls


class _Trace:
    """Counts calls between modules of a tree while it is ``on``."""

    def __init__(self, tree: Path) -> None:
        self.on = False
        self.calls: Counter[tuple[str, str]] = Counter()
        self.last = 0.0
        self._roots = tuple(f"{tree / package}{os.sep}" for package in PACKAGES)

    def saw(self, frame: FrameType, event: str, _: object) -> None:
        """Profile function of all threads."""
        if not self.on or event != "call" or not self._is_ours(frame) or frame.f_code.co_name == "<module>":
            return
        self.last = time.monotonic()
        self.calls[self._caller(frame), frame.f_globals["__name__"]] += 1

    def _caller(self, frame: FrameType) -> str:
        """The module of ours that called, through a library perhaps; empty where the event loop or a thread did."""
        above = frame.f_back
        while above is not None and not above.f_code.co_filename.endswith(EVENT_LOOP):
            if self._is_ours(above):
                name: str = above.f_globals["__name__"]
                return name
            above = above.f_back
        return ""

    def _is_ours(self, frame: FrameType) -> bool:
        return frame.f_code.co_filename.startswith(self._roots)


def _play(port: int, trace: _Trace) -> None:
    """Play a session of five calls; the last, in which the result of the first leaves and comes back, is traced."""
    _until(lambda: socket.create_connection(("127.0.0.1", port), 1).close(), OSError)
    history: list[dict[str, Any]] = [{"role": "user", "content": "read the file and say whether it is fine"}]
    for number in range(4):
        _ask(port, history)
        result = PAGE if number == 0 else f"part {number} is fine"
        history += [_tool_call(number), {"role": "tool", "tool_call_id": f"call_{number}", "content": result}]
    _rest(trace)
    before = len(_Provider.requests)
    trace.on = True
    answer = _ask(port, history)
    _rest(trace)
    trace.on = False
    legs = len(_Provider.requests) - before
    if legs != 2 or b"page_in" in answer or b"fine." not in answer:
        raise RuntimeError(f"{legs} requests upstream instead of 2, answered with {answer!r}")


def _rest(trace: _Trace) -> None:
    """Wait until nothing of ours is called any more; logging goes on behind the answer."""
    time.sleep(QUIET)
    while time.monotonic() - trace.last < QUIET:
        time.sleep(QUIET / 10)


def _ask(port: int, history: list[dict[str, Any]]) -> bytes:
    function = {"name": "read", "description": "Reads.", "parameters": {"type": "object", "properties": {}}}
    tools = [{"type": "function", "function": function}]
    body = {"model": "scripted-1", "stream": True, "messages": history, "tools": tools}
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"content-type": "application/json", "authorization": "Bearer none", "x-session-id": "house"}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    response = connection.getresponse()
    answer = response.read()
    connection.close()
    if response.status != 200:
        raise RuntimeError(f"status {response.status}: {answer!r}")
    return answer


def _tool_call(number: int) -> dict[str, Any]:
    function = {"name": "read", "arguments": json.dumps({"path": f"part{number}"})}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


class _Provider(BaseHTTPRequestHandler):
    """Asks for the next part until a stub is in the prompt, then for the stub's page, then ends."""

    requests: list[dict[str, Any]] = []
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Stream an answer."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.requests.append(body)
        messages = body["messages"]
        handle = re.search(r"pg_[0-9a-f]+", json.dumps(messages))
        asked = any("page_in" in json.dumps(message.get("tool_calls")) for message in messages)
        if handle is None:
            delta, finish = _delta(_tool_call(len(self.requests) - 1)), "tool_calls"
        elif not asked:
            call = {"id": "call_page", "type": "function", "index": 0}
            call |= {"function": {"name": "page_in", "arguments": json.dumps(_arguments(body, handle[0]))}}
            delta, finish = {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
        else:
            delta, finish = {"role": "assistant", "content": "All parts are fine."}, "stop"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for chunk in _chunks(delta, finish):
            self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""


def _arguments(body: dict[str, Any], handle: str) -> dict[str, Any]:
    """Arguments of page_in for one page, by the parameters that the prompt offers."""
    (tool,) = (tool["function"] for tool in body["tools"] if tool["function"]["name"] == "page_in")
    (name,) = tool["parameters"]["required"]
    is_list = tool["parameters"]["properties"][name].get("type") == "array"
    return {name: [handle] if is_list else handle}


def _delta(message: dict[str, Any]) -> dict[str, Any]:
    return message | {"tool_calls": [{**call, "index": 0} for call in message["tool_calls"]]}


def _chunks(delta: dict[str, Any], finish: str) -> Iterator[bytes]:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "scripted-1"}
    usage = {"prompt_tokens": 2000, "completion_tokens": 20, "total_tokens": 2020}
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    for event in (
        {"choices": [choice]},
        {"choices": [choice | {"delta": {}, "finish_reason": finish}]},
        {"choices": [], "usage": usage},
    ):
        yield f"data: {json.dumps(head | event)}\n\n".encode()
    yield b"data: [DONE]\n\n"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _until(attempt: Callable[[], object], failure: type[Exception]) -> None:
    """Repeat an attempt until it succeeds, for at most a minute."""
    end = time.monotonic() + 60
    while True:
        try:
            attempt()
        except failure:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
        else:
            return


if __name__ == "__main__":
    sys.exit(main())
