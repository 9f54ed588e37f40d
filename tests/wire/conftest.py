"""Agents for the tests of paging: each drives a real SDK and keeps what came over the wire, byte for byte."""

import json
import re
import sqlite3
import uuid
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256

import httpx2
import msgspec
import pytest
from anthropic import Anthropic
from openai import OpenAI
from waiting import PATIENCE

from pager.log.events import Repacked, decode
from pager.testing.scripted import Call, Say, Script
from pager.wire.chat.scripted import Scripted as Chat
from pager.wire.messages.scripted import Scripted as Messages
from pager.wire.responses.scripted import Scripted as Responses

SOON = ("--policy", "fifo_age", "--paging-policy-options", "{ age = 2, size = 500 }")
"""The policy under which a result leaves the prompt three calls after the one that brought it."""

SYSTEM = "You are a careful agent. " * 10
PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
NAMES = ("read", "look", "write")
WORDS = ("harbour", "lantern", "violet", "meadow", "copper", "autumn", "bridge", "silver", "garden", "window", "planet")
TRACES = re.compile(rb"page_in|pg_[0-9a-f]")
ID_KEYS = {"id", "item_id", "call_id", "tool_use_id", "created", "created_at", "completed_at", "obfuscation"}
VARIES = {*ID_KEYS, "usage", "encrypted_content", "signature"}


def page(path):
    """What a file holds, the same for the same path: about 3 KB of words, of digits if dense; little if small."""
    if path.startswith("small"):
        return f"{path} is fine"
    hashes = (sha256(f"{path}{number}".encode()).digest() for number in range(1, 61))
    told = (
        one.hex()[:24] if path.startswith("dense") else " ".join(WORDS[byte % len(WORDS)] for byte in one[:4])
        for one in hashes
    )
    return "".join(f"{number}: {word} stands in {path}\n" for number, word in enumerate(told, 1))


def read(*numbers):
    """An answer that reads files with numbers."""
    return Say(calls=[Call("read", {"path": f"src/part{number}.py"}) for number in numbers])


def look(number):
    """An answer that asks for something that is no page."""
    return Say(calls=[Call("look", {"path": f"small{number}"})])


OPENING = (read(1, 2, 3), look(1), look(2), look(3))
"""Four calls after which, at the fifth, three results leave the prompt at once; nothing else does before the ninth."""


class Tee(httpx2.HTTPTransport):
    """Keeps the bytes of all requests and answers."""

    def __init__(self, pack=None):
        super().__init__(verify=False)  # there is no TLS, and certificates are slow to load
        self.sent, self.got = [], []
        self.encoding, self.pack = pack or ("", None)

    def handle_request(self, request):
        body = request.read()
        if self.pack:
            body = self.pack(body)
            headers = {**request.headers, "content-encoding": self.encoding, "content-length": str(len(body))}
            request = httpx2.Request(
                request.method, request.url, headers=headers, content=body, extensions=request.extensions
            )
        self.sent.append(body)
        response = super().handle_request(request)
        self.got.append(bytearray())
        response.stream = _Kept(response.stream, self.got[-1])
        return response


class _Kept(httpx2.SyncByteStream):
    def __init__(self, stream, kept):
        self._stream, self._kept = stream, kept

    def __iter__(self):
        for chunk in self._stream:
            self._kept.extend(chunk)
            yield chunk

    def close(self):
        self._stream.close()


@dataclass(frozen=True)
class Turn:
    """One answer as the SDK gave it; ``raw`` are its bytes."""

    text: str
    reasoning: str
    calls: tuple
    finish: str
    usage: dict
    raw: bytes

    @property
    def said(self):
        """What must be the same with and without paging."""
        return self.text, self.reasoning, self.calls, self.finish

    @property
    def events(self):
        """The events of the stream, or the one body, as JSON."""
        if not self.raw.startswith((b"data:", b"event:", b":")):
            return [json.loads(self.raw)]
        data = re.findall(rb"^data: (.*)$", self.raw, re.MULTILINE)
        return [json.loads(one) if one != b"[DONE]" else "[DONE]" for one in data]


def plain(value):
    """A JSON value without what differs from answer to answer: ids, times, tokens."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items() if key not in VARIES}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


class Agent:
    """A client with a growing history; results of its tools follow from their arguments."""

    path = ""

    def __init__(self, stage, root, *, stream=True, session=None, pack=None, **request):
        self.stage, self.stream, self.request = stage, stream, request
        self.session = session or f"test-{uuid.uuid4().hex[:12]}"
        self.tee = Tee(pack)
        self.history = self.opening()
        self.turns, self.legs = [], []
        self.go_to(root)

    def go_to(self, root):
        """Talk to this address from now on."""
        http = httpx2.Client(transport=self.tee, timeout=PATIENCE, trust_env=False)
        options = {"max_retries": 0, "default_headers": {"x-session-id": self.session}, "http_client": http}
        self.root, self.sdk = root, self.connect(root, **options)

    def ask(self, **more):
        """One call: its answer goes into the history."""
        before = len(self.stage.received)
        stream = more.pop("stream", self.stream)
        try:
            answer = (self.streamed if stream else self.whole)(self.body(**more))
        finally:
            own = [one for one in self.stage.received[before:] if one.header("x-session-id") == self.session]
            self.legs.append(own)
        self.turns.append(self.turn(answer, bytes(self.tee.got[-1])))
        self.remember(answer)
        return self.turns[-1]

    def answer(self):
        """Run the tools that the latest answer called."""
        for call_id, _, arguments in self.turns[-1].calls:
            self.result(call_id, page(arguments["path"]))

    def run(self, calls=1_000, **more):
        """Go on, tools and all, until an answer calls none, or for so many calls; the answers."""
        first = len(self.turns)
        for _ in range(calls):
            turn = self.ask(**more)
            if not turn.calls:
                break
            self.answer()
        return self.turns[first:]

    def opened(self):
        """This agent after the four calls of OPENING.

        They go past the SDKs' checks of what a history holds, which take longer than all else.
        """
        unchecked = {self.items: self.history}
        self.run(len(OPENING), stream=False, extra_body=unchecked, **{self.items: []})
        return self

    def body(self, **more):
        """The next request as JSON, for who wants to send it without the SDK."""
        return {key: value for key, value in {**self.base(), **self.request, **more}.items() if value is not None}

    @property
    def sent(self):
        """What went upstream for the latest call, as JSON, leg by leg."""
        return [received.json() for received in self.legs[-1]]

    def close(self):
        self.sdk.close()


class ChatAgent(Agent):
    wire, items = Chat(), "messages"
    path = "/v1/chat/completions"

    def connect(self, root, **options):
        return OpenAI(base_url=f"{root}/v1", api_key="sk-test", **options)

    def opening(self):
        return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Look at all parts. ☔"}]

    def base(self):
        described = [{"name": name, "description": f"To {name} files.", "parameters": PATH} for name in NAMES]
        tools = [{"type": "function", "function": function} for function in described]
        return {"model": "scripted-1", "messages": self.history, "tools": tools}

    def whole(self, request):
        return self.sdk.chat.completions.create(**request)

    def streamed(self, request):
        options = {"include_usage": True}
        with self.sdk.chat.completions.stream(**{"stream_options": options, **request}) as stream:
            stream.until_done()
            return stream.get_final_completion()

    def turn(self, answer, raw):
        choice = answer.choices[0]
        calls = choice.message.tool_calls or []
        made = tuple((call.id, call.function.name, json.loads(call.function.arguments)) for call in calls)
        reasoning = getattr(choice.message, "reasoning_content", None) or ""
        usage = answer.usage
        told = {"input": usage.prompt_tokens, "output": usage.completion_tokens} if usage else {}
        told |= {"cached": usage.prompt_tokens_details.cached_tokens} if usage else {}
        return Turn(choice.message.content or "", reasoning, made, choice.finish_reason, told, raw)

    def remember(self, answer):
        parsed = {"parsed": True, "tool_calls": {"__all__": {"function": {"parsed_arguments"}}}}
        message = answer.choices[0].message.model_dump(exclude_none=True, exclude=parsed)
        if not message.get("tool_calls"):
            message.pop("tool_calls", None)
        self.history.append(message)

    def result(self, call_id, text):
        self.history.append({"role": "tool", "tool_call_id": call_id, "content": text})

    def user(self, text):
        self.history.append({"role": "user", "content": text})


class MessagesAgent(Agent):
    wire, items = Messages(), "messages"
    path = "/v1/messages"

    def connect(self, root, **options):
        return Anthropic(base_url=root, api_key="sk-ant-test", **options)

    def opening(self):
        return [{"role": "user", "content": "Look at all parts. ☔"}]

    def base(self):
        tools = [{"name": name, "description": f"To {name} files.", "input_schema": PATH} for name in NAMES]
        sent = {"model": "scripted-1", "max_tokens": 1000, "system": SYSTEM}
        return {**sent, "messages": self.history, "tools": tools}

    def whole(self, request):
        return self.sdk.messages.create(**request)

    def streamed(self, request):
        with self.sdk.messages.stream(**request) as stream:
            return stream.get_final_message()

    def turn(self, answer, raw):
        blocks = answer.content
        text = "".join(block.text for block in blocks if block.type == "text")
        reasoning = "".join(block.thinking for block in blocks if block.type == "thinking")
        calls = tuple((block.id, block.name, block.input) for block in blocks if block.type == "tool_use")
        usage = answer.usage
        cached, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
        told = {"input": usage.input_tokens + cached + written, "output": usage.output_tokens, "cached": cached}
        return Turn(text, reasoning, calls, answer.stop_reason, told, raw)

    def remember(self, answer):
        blocks = [block.model_dump(exclude_none=True, exclude={"parsed_output"}) for block in answer.content]
        self.history.append({"role": "assistant", "content": blocks})

    def result(self, call_id, text):
        block = {"type": "tool_result", "tool_use_id": call_id, "content": text}
        if self.history[-1]["role"] == "assistant":
            self.history.append({"role": "user", "content": []})
        self.history[-1]["content"].append(block)

    def user(self, text):
        self.history.append({"role": "user", "content": [{"type": "text", "text": text}]})


class ResponsesAgent(Agent):
    wire, items = Responses(), "input"
    path = "/v1/responses"

    def connect(self, root, **options):
        return OpenAI(base_url=f"{root}/v1", api_key="sk-test", **options)

    def opening(self):
        return [{"role": "user", "content": "Look at all parts. ☔"}]

    def base(self):
        described = [{"name": name, "description": f"To {name} files.", "parameters": PATH} for name in NAMES]
        tools = [{"type": "function", "strict": False, **function} for function in described]
        kept = {"store": False, "include": ["reasoning.encrypted_content"]}
        return {"model": "scripted-1", "instructions": SYSTEM, "input": self.history, "tools": tools, **kept}

    def whole(self, request):
        return self.sdk.responses.create(**request)

    def streamed(self, request):
        with self.sdk.responses.stream(**request) as stream:
            stream.until_done()
            return stream.get_final_response()

    def turn(self, answer, raw):
        thoughts = [item for item in answer.output if item.type == "reasoning"]
        reasoning = "".join(part.text for item in thoughts for part in item.summary)
        called = [item for item in answer.output if item.type == "function_call"]
        calls = tuple((item.call_id, item.name, json.loads(item.arguments)) for item in called)
        usage = answer.usage
        cached = usage.input_tokens_details.cached_tokens
        told = {"input": usage.input_tokens, "output": usage.output_tokens, "cached": cached}
        return Turn(answer.output_text, reasoning, calls, answer.status, told, raw)

    def remember(self, answer):
        self.history += [
            item.model_dump(exclude_none=True, exclude={"parsed_arguments": True, "content": {"__all__": {"parsed"}}})
            for item in answer.output
        ]

    def result(self, call_id, text):
        self.history.append({"type": "function_call_output", "call_id": call_id, "output": text})

    def user(self, text):
        self.history.append({"role": "user", "content": text})


AGENTS = {"chat": ChatAgent, "messages": MessagesAgent, "responses": ResponsesAgent}


def logged(data_dir, session):
    """The events of the session with this key, read beside the proxy that writes them."""
    with closing(sqlite3.connect(f"file:{data_dir / 'ctxpager.sqlite3'}?mode=ro", uri=True)) as file:
        opened = "SELECT session FROM events WHERE kind = 'SessionOpened' AND data ->> 'key' = ?"
        query = f"SELECT version, CAST(data AS BLOB) FROM events WHERE session IN ({opened}) ORDER BY seq"
        return [decode(data, version) for version, data in file.execute(query, (session,))]


def pieces(agent, received):
    """The prompt of a request in the order in which a provider reads it, byte for byte but for cache marks."""
    body = msgspec.json.decode(received.body, type=dict[str, msgspec.Raw])
    tools = msgspec.json.decode(body["tools"], type=list[msgspec.Raw]) if "tools" in body else []
    items = msgspec.json.decode(body[agent.items], type=list[msgspec.Raw])
    head = [body[key] for key in ("system", "instructions") if key in body]
    return [_unmarked(bytes(raw)) for raw in [*tools, *head, *items]]


def _unmarked(raw):
    """The bytes; a message that carries a mark is written as it was without."""
    raw = re.sub(rb',"cache_control":\{"type":"ephemeral"(?:,"ttl":"\d\w")?\}', b"", raw)
    return re.sub(rb'\[\{"type":"text","text":("(?:[^"\\]|\\.)*")\}\]', rb"\1", raw)


@dataclass
class Stage:
    """A scripted model with a proxy before it, and the agents that act on it."""

    scripted: object
    proxy: object
    eventually: object
    agents: list = field(default_factory=list)
    refusals: bool = False
    lawful: bool = True
    traces: bool = False
    page = staticmethod(page)
    read = staticmethod(read)
    look = staticmethod(look)
    plain = staticmethod(plain)
    pieces = staticmethod(pieces)

    @property
    def received(self):
        return self.scripted.received

    def play(self, *answers, **options):
        """Begin a script, with the four calls of OPENING first unless ``opening`` is False."""
        self.expect_no_refusals()
        opening = OPENING if options.pop("opening", True) else ()
        self.scripted.play(Script([*opening, *answers], **options))

    def agent(self, wire, *, direct=False, **options):
        root = self.scripted.root if direct else self.proxy.root
        made = AGENTS[wire](self, root, **options)
        self.agents.append((made, not direct))
        return made

    def log(self, agent, *kinds, count=0):
        """The logged events of an agent's session, of these kinds, once there are so many; answers are logged late."""

        def found():
            return [event for event in logged(self.proxy.data_dir, agent.session) if isinstance(event, kinds)]

        assert not count or self.eventually(lambda: len(found()) >= count), found()
        return found()

    def expect_no_refusals(self):
        if not self.refusals:
            assert [received.refused for received in self.received if received.refused] == []

    def expect_no_traces(self):
        """Nothing of paging has come to any client."""
        for agent, _ in () if self.traces else self.agents:
            for got in agent.tee.got:
                assert not TRACES.search(got), bytes(got)

    def expect_one_prefix(self):
        """Consecutive requests of an agent extend one prompt, except where the log has a repack."""
        for agent, proxied in self.agents:
            repacks = self.log(agent, Repacked) if proxied else []
            moved = {(event.call, event.cause == "rescue") for event in repacks}
            before, latest = [], 0
            for call, received in [(call, one) for call, legs in enumerate(agent.legs, 1) for one in legs]:
                if received.refused:
                    continue
                prompt = pieces(agent, received)
                within = call == latest
                if not {(call, True), (call, within)} & moved:
                    assert prompt[: len(before)] == before, f"call {call}"
                before, latest = prompt, call

    def check(self):
        """What must hold of every session."""
        self.expect_no_refusals()
        self.expect_no_traces()
        if self.lawful:
            self.expect_one_prefix()


@pytest.fixture(scope="session")
def _paging_proxy(_model, tmp_path_factory, running):
    with running(_model.url, tmp_path_factory.mktemp("paging") / "data", *SOON) as proxy:
        yield proxy


@contextmanager
def opened(*parts):
    """A stage whose agents' wires are checked in the end."""
    stage = Stage(*parts)
    try:
        yield stage
        stage.check()
    finally:
        for agent, _ in stage.agents:
            agent.close()


@pytest.fixture
def open_stage(scripted, eventually):
    """Opens a stage with this proxy: ``with open_stage(proxy) as stage``."""
    return lambda proxy: opened(scripted, proxy, eventually)


@pytest.fixture
def stage(_paging_proxy, open_stage):
    """The scripted model behind a proxy that evicts soon."""
    with open_stage(_paging_proxy) as stage:
        yield stage


@pytest.fixture(scope="session")
def soon():
    """The flags under which results leave the prompt soon."""
    return SOON


@pytest.fixture(params=[*AGENTS])
def wire(request):
    return request.param


@pytest.fixture(params=[True, False], ids=["stream", "whole"])
def stream(request):
    return request.param
