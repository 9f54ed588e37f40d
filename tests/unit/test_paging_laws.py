"""Laws of paging: whatever a harness sends, a model says and a policy evicts, what goes upstream is sound.

A conversation is played against the log and the pager as the server drives them: a harness with habits of its own sends
its history again and again, the scripted model answers, asks for pages and imitates stubs, a policy evicts at will.
"""

import asyncio
import json
from dataclasses import dataclass, field, fields
from hashlib import sha256
from typing import NamedTuple
from zlib import crc32

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st
from laws import examples

from pager.log.events import LegFinished, Repacked, ToolsDecided
from pager.log.stores import open_store
from pager.paging.held_calls import Guard, Next, follows, reply
from pager.paging.page_in import definition
from pager.paging.pager import Pager
from pager.paging.policy import Decision
from pager.paging.policy_choice import Arms, NamedPolicy
from pager.pricing.rates import Models
from pager.proxy.call_log import CallLog
from pager.proxy.log_records import Incoming, Outcome
from pager.request_values import Kind, Usage
from pager.sessions.rebuild import Rebuilder
from pager.testing.scripted.request_rules import problems
from pager.wire import dialects
from pager.wire.chat.scripted import Scripted as Chat
from pager.wire.messages.scripted import Scripted as Messages
from pager.wire.responses.scripted import Scripted as Responses
from pager.wire.scripted import Call, Say, Turn

WIRES = {"chat": Chat(), "messages": Messages(), "responses": Responses()}
NAMES = sorted(WIRES)
TOOLS = ("read", "run", "write")
MODELS = Models.load()
PROSE = "Does one thing. " + "And it has a long story to tell of how it does that, and of when to call it. " * 6
MORE = tuple(f"extra_{at}" for at in range(10))
SIZED = {"type": "object", "properties": {"size": {"type": "integer", "description": PROSE}}, "required": ["size"]}
PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)
LAW = examples(40, tolerated=HealthCheck, phases=PHASES)


# ---------------------------------------------------------------- what is said


def page(number):
    """A text that is a page, and told from others by each of its lines."""
    lines = (f"def function_{number}_{at}(argument): return 'value {number * at}'" for at in range(16 + number))
    return "\n".join(lines) + "\n" * (number % 2)


@dataclass(frozen=True)
class Use:
    """One call of the harness's own tools, and what comes of it."""

    tool: str
    number: int
    fails: bool

    @property
    def call(self):
        content = {"content": page(self.number) * 2} if self.tool == "write" else {}
        return Call(self.tool, {"path": f"src/file_{self.number}.py", **content})

    @property
    def result(self):
        return page(self.number) if self.tool == "read" else f"exit code {self.number}"


@dataclass(frozen=True)
class Ask:
    """A hidden leg: pages asked for by their numbers, or a call that repeats a stub instead of content."""

    pages: tuple[int, ...]
    imitates: bool
    is_wrong: bool
    text: str
    reasoning: str


@dataclass(frozen=True)
class Step:
    """One call: what the model says and asks for on the way, and what the harness does then."""

    text: str
    reasoning: str
    uses: tuple[Use, ...]
    asks: tuple[Ask, ...] = ()
    mixed: bool = False
    again: bool = False
    back: int | None = None
    shortens: str = ""
    forced: bool = False
    bypass: bool = False
    rescue: int = 0
    gap: float = 10.0

    @property
    def say(self):
        return Say(self.text or ("" if self.uses else "Done."), [use.call for use in self.uses], self.reasoning)


@dataclass(frozen=True)
class Habits:
    """What a harness does to its own history, and how it writes it."""

    restless: bool = False
    compact: bool = False
    as_parts: bool = False
    marks: bool = False
    rewrites_first: bool = False
    keeps_reasoning: bool = True
    tools_last: bool = False
    tools_in_item: bool = False
    many_tools: bool = False
    changes_tools: int = 99
    changes_system: int = 99
    drops_text: bool = False
    notes: bool = False
    encrypted: bool = True
    interleaves: bool = False
    model: str = "some-model"


numbers = st.integers(0, 5)
words = st.sampled_from(["", "", "I look at it.", "So:\n" + page(1).split("\n")[3], "As seen in src/file_2.py"])
thoughts = st.sampled_from(["", "", "Hm, what now?", "Let me think."])
uses = st.builds(
    Use, st.sampled_from(["read", "read", "read", "run", "write"]), numbers, st.just(False) | st.booleans()
)
asks = st.builds(Ask, st.lists(numbers, min_size=1, max_size=3).map(tuple), *[st.booleans()] * 2, words, thoughts)
steps = st.builds(
    Step,
    words,
    thoughts,
    st.lists(uses, max_size=3).map(tuple),
    st.just(()) | st.lists(asks, max_size=3).map(tuple),
    mixed=st.booleans(),
    again=st.sampled_from([False, False, False, True]),
    back=st.sampled_from([None, None, None, None, None, 0, 1, 2]),
    shortens=st.sampled_from(["", "", "", "", "", "clear", "compact"]),
    forced=st.sampled_from([False] * 7 + [True]),
    bypass=st.sampled_from([False] * 7 + [True]),
    rescue=st.sampled_from([0, 0, 0, 0, 300, 2_000]),
    gap=st.sampled_from([10.0, 10.0, 4_000.0]),
)
conversations = st.lists(steps, min_size=3, max_size=9)
habits = st.builds(
    Habits,
    *[st.booleans()] * 4,
    rewrites_first=st.sampled_from([False, False, False, True]),
    keeps_reasoning=st.sampled_from([True, True, False]),
    tools_last=st.booleans(),
    tools_in_item=st.booleans(),
    many_tools=st.booleans(),
    changes_tools=st.sampled_from([99, 99, 2, 3, 4]),
    changes_system=st.sampled_from([99, 99, 2, 4, 5]),
    drops_text=st.sampled_from([False, False, True]),
    notes=st.sampled_from([False, False, True]),
    encrypted=st.booleans(),
    interleaves=st.booleans(),
    model=st.sampled_from(["some-model", "claude-opus-4-5", "claude-opus-6"]),
)


class Moody:
    """A policy that evicts what it likes, the same in every process."""

    def __init__(self, seed, rate):
        self.seed, self.rate = seed, rate

    def choose(self, view):
        liked = [p for p in view.pages if crc32(f"{self.seed}.{view.call}.{p.handle}".encode()) % 100 < self.rate]
        return Decision(tuple(page.handle for page in liked if page.evictable))


moods = st.builds(Moody, st.integers(0, 1_000), st.sampled_from([0, 30, 60, 100]))


# ---------------------------------------------------------------- harnesses


class Harness:
    """A client of one wire format: keeps its history, and sends all of it with every call."""

    force = "required"

    def __init__(self, habits):
        self.habits = habits
        self.sent = []
        self.items = [self.user("Please do it."), *self.carried()]

    def carried(self):
        return []

    def body(self, call, *, forced):
        """The request; a restless harness writes the same things in another way each time."""
        self.sent.append(len(self.items))
        members = {"model": self.habits.model, **self.head(), self.key: self.written(call), **self.tail()}
        members |= {"tool_choice": self.force} if forced else {}
        close = self.habits.compact if not self.habits.restless else call % 2
        return json.dumps(members, separators=(",", ":") if close else (", ", ": "), ensure_ascii=bool(close)).encode()

    def head(self):
        return {} if self.habits.tools_last else self.offered()

    def system(self):
        return "Be good." if len(self.sent) <= self.habits.changes_system else "Be better."

    def tail(self):
        return self.offered() if self.habits.tools_last else {}

    def offered(self):
        return {"tools": self.tools()}

    def described(self):
        """The tools that are offered, each with a description and parameters."""
        more = MORE[: -1 if len(self.sent) > self.habits.changes_tools else None] if self.habits.many_tools else ()
        return [*((name, "", {"type": "object"}) for name in TOOLS), *((name, PROSE, SIZED) for name in more)]

    def written(self, call):
        items = [self.rewritten(item, call) for item in self.items] if self.habits.restless else list(self.items)
        return [self.user(f"Please do it. It is {call} o'clock."), *items[1:]] if self.habits.rewrites_first else items

    def rewritten(self, item, call):
        return item

    def rewind(self, steps):
        """Go back to what was sent some calls ago, and say something else."""
        at = max(len(self.sent) - 1 - steps, 0)
        del self.items[self.sent[at] :], self.sent[at + 1 :]
        self.items.append(self.user(f"No, rather this, after {len(self.items)} items."))

    def compact(self):
        """Put a summary in place of all that was said."""
        self.items = [self.user(f"What was said in {len(self.items)} items."), *self.carried()]
        self.sent.clear()

    def clear(self):
        """Take the content of the oldest result out of the history."""
        for at, item in enumerate(self.items):
            cleared = self.cleared(item)
            if cleared != item:
                self.items[at] = cleared
                return


def again(arguments, call):
    """The same arguments, written in another way with every call."""
    return json.dumps(json.loads(arguments), indent=call % 2 or None)


class ChatHarness(Harness):
    key = "messages"

    def head(self):
        at_head = self.items[0]["role"] == "system"
        self.items[: 1 if at_head else 0] = [{"role": "system", "content": self.system()}]
        return super().head()

    def written(self, call):
        items = super().written(call)
        if self.habits.rewrites_first:
            items = [self.items[0], {"role": "user", "content": f"It is {call}."}, *items[2:]]
        return list(self.noted(items, call)) if self.habits.notes else items

    def noted(self, items, call):
        """The history with a note in the midst of its newest answer, of which each call is a message of its own."""
        newest = max((at for at, item in enumerate(items) if item.get("tool_calls")), default=len(items))
        yield from items[:newest]
        said = {} if newest == len(items) else items[newest]
        calls, rest = said.get("tool_calls") or (), items[newest + 1 :]
        answered = {item["tool_call_id"]: item for item in rest if item["role"] == "tool"}
        if said.get("content"):
            yield {key: said[key] for key in said if key != "tool_calls"}
        yield {"role": "user", "content": f"It is {call} by now."}
        for one in calls:
            yield {"role": "assistant", "content": None, "tool_calls": [one]}
            yield answered[one["id"]]
        yield from (item for item in rest if item["role"] != "tool")

    def user(self, text):
        return {"role": "user", "content": text}

    def tools(self):
        return [
            {"type": "function", "function": {"name": name, "description": said, "parameters": schema}}
            for name, said, schema in self.described()
        ]

    def take(self, answer):
        said = answer["choices"][0]["message"]
        kept = ("role", "content", "tool_calls", *(["reasoning_content"] if self.habits.keeps_reasoning else []))
        dropped = {"content": None} if self.habits.drops_text and said.get("tool_calls") else {}
        self.items.append({key: said[key] for key in kept if key in said} | dropped)
        return [call["id"] for call in said.get("tool_calls") or ()]

    def results(self, pairs):
        for call_id, use in pairs:
            content = [{"type": "text", "text": use.result}] if self.habits.as_parts else use.result
            self.items.append({"role": "tool", "tool_call_id": call_id, "content": content})

    def cleared(self, item):
        return {**item, "content": "cleared"} if item["role"] == "tool" else item

    def rewritten(self, item, call):
        calls = [
            {**one, "function": {**one["function"], "arguments": again(one["function"]["arguments"], call)}}
            for one in item.get("tool_calls") or ()
        ]
        return {**item, "tool_calls": calls} if calls else item


class MessagesHarness(Harness):
    key = "messages"
    force = {"type": "any"}

    def user(self, text):
        return {"role": "user", "content": text}

    def head(self):
        system = [{"type": "text", "text": f"{self.system()} " * 40, **self.mark()}]
        return {"max_tokens": 1000, "system": system, **super().head()}

    def mark(self):
        return {"cache_control": {"type": "ephemeral"}} if self.habits.marks else {}

    def tools(self):
        tools = [{"name": name, "description": said, "input_schema": schema} for name, said, schema in self.described()]
        return [*tools[:-1], {**tools[-1], **self.mark()}]

    def take(self, answer):
        said = [part for part in answer["content"] if self.habits.keeps_reasoning or part["type"] != "thinking"]
        if self.habits.drops_text and any(part["type"] == "tool_use" for part in said):
            said = [part for part in said if part["type"] != "text"]
        self.items.append({"role": "assistant", "content": said})
        return [part["id"] for part in said if part["type"] == "tool_use"]

    def results(self, pairs):
        blocks = []
        for call_id, use in pairs:
            content = [{"type": "text", "text": use.result}] if self.habits.as_parts else use.result
            failed = {"is_error": True} if use.fails else {}
            blocks.append({"type": "tool_result", "tool_use_id": call_id, "content": content, **failed})
        self.items.append({"role": "user", "content": blocks})

    def cleared(self, item):
        blocks = item["content"] if isinstance(item["content"], list) else []
        kept = [{**one, "content": "cleared"} if one["type"] == "tool_result" else one for one in blocks]
        return {**item, "content": kept} if blocks else item

    def written(self, call):
        items = super().written(call)
        users = [at for at, item in enumerate(items) if item["role"] == "user"][-2:] if self.habits.marks else []
        return [self.marked(item) if at in users else item for at, item in enumerate(items)]

    def marked(self, item):
        content = item["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        return {**item, "content": [*blocks[:-1], {**blocks[-1], **self.mark()}]}


class ResponsesHarness(Harness):
    key = "input"

    def user(self, text):
        return {"role": "user", "content": [{"type": "input_text", "text": text}]}

    def carried(self):
        return [{"type": "additional_tools", "tools": self.tools()}] if self.habits.tools_in_item else []

    def offered(self):
        return {} if self.habits.tools_in_item else super().offered()

    def head(self):
        stateless = {"store": False, "include": ["reasoning.encrypted_content"]} if self.habits.encrypted else {}
        return {"instructions": self.system(), **stateless, **super().head()}

    def tools(self):
        return [
            {"type": "function", "name": name, "description": said, "parameters": schema, "strict": False}
            for name, said, schema in self.described()
        ]

    def take(self, answer):
        drops_ids = self.habits.encrypted and self.habits.compact
        said = [{key: item[key] for key in item if key != "id" or not drops_ids} for item in answer["output"]]
        if self.habits.drops_text and any(item["type"] == "function_call" for item in said):
            said = [item for item in said if item["type"] != "message"]
        self.items += [item for item in said if self.habits.keeps_reasoning or item["type"] != "reasoning"]
        return [item["call_id"] for item in said if item["type"] == "function_call"]

    def results(self, pairs):
        for call_id, use in pairs:
            content = [{"type": "input_text", "text": use.result}] if self.habits.as_parts else use.result
            item = {"type": "function_call_output", "call_id": call_id, "output": content}
            made = next(at for at, one in enumerate(self.items) if one.get("call_id") == call_id)
            self.items.insert(made + 1 if self.habits.interleaves else len(self.items), item)

    def cleared(self, item):
        return {**item, "output": "cleared"} if "output" in item else item

    def rewritten(self, item, call):
        return {**item, "arguments": again(item["arguments"], call)} if "arguments" in item else item


HARNESSES = {"chat": ChatHarness, "messages": MessagesHarness, "responses": ResponsesHarness}


# ---------------------------------------------------------------- a conversation


class Sent(NamedTuple):
    """One request as it went upstream, with what it was made of.

    ``slots`` has for each item the client's own bytes, or None for one of ours, and the handles of its stubs.
    """

    entry: object
    leg: int
    body: bytes
    slots: list
    tool: str
    repacked: bool
    paged: bool

    @property
    def handles(self):
        return self.entry.paged.table.schemas.keys()

    @property
    def branch(self):
        return self.entry.placement.branch.number

    @property
    def client(self):
        return self.entry.incoming.request

    @property
    def dialect(self):
        return self.entry.incoming.dialect

    @property
    def bodies(self):
        return self.client.body, self.body

    @property
    def json(self):
        return json.loads(self.body)


@dataclass
class Player:
    """Plays a conversation; before the calls in ``restarts`` all that is in memory is lost."""

    name: str
    habits: Habits
    policy: Moody
    marks: bool = True
    restarts: frozenset = frozenset()
    sent: list = field(default_factory=list)
    handles: dict = field(default_factory=dict)

    def __post_init__(self):
        self.dialect, self.wire = dialects.load(self.name), WIRES[self.name]
        self.harness = HARNESSES[self.name](self.habits)
        self.store = open_store("memory:")
        self.calls, self.now = 0, 1_000.0
        self.restart()

    def restart(self):
        self.pager = Pager(Arms(NamedPolicy("moody", self.policy)), MODELS, dialects.load, marks=self.marks)
        self.call_log = CallLog(self.store, dialects.load, 10, self.pager)

    def play(self, steps):
        async def played():
            for step in steps:
                await self.step(step)
            await self.call_log.drain()

        asyncio.run(played())
        return self

    async def step(self, step):
        if step.back is not None and self.harness.sent:
            self.harness.rewind(step.back)
        if step.shortens:
            getattr(self.harness, step.shortens)()
        entry, answer = await self.call(step, self.harness.body(self.calls, forced=step.forced))
        if step.again:
            entry, answer = await self.call(step, entry.incoming.request.body)
        said = self.dialect.read(answer)
        usage = said.usage
        if entry.paged is not None and usage is not None:
            entry.paged.table.learn_usage(usage, len(entry.incoming.request.body), entry.placement.call)
        self.call_log.answered(entry, said, Outcome(200, answer, 1.0, 2.0, self.now), 0)
        ids = self.harness.take(json.loads(answer))
        if ids:
            self.harness.results(list(zip(ids, step.uses, strict=True)))
        else:
            self.harness.items.append(self.harness.user(f"Go on with step {self.calls}."))

    async def call(self, step, body):
        if self.calls in self.restarts:
            await self.call_log.drain()
            self.restart()
        self.calls += 1
        self.now += step.gap
        headers = {"x-session-id": "s", **({"x-pager-bypass": "1"} if step.bypass else {})}
        request = self.dialect.parse(body)
        incoming = Incoming(self.dialect, request, "local", headers, "/v1" + self.dialect.path, "", self.now)
        entry = await self.call_log.receive(incoming)
        assert not entry.session.unpaged
        if step.rescue:
            await self.rescue(entry, step.rescue)
        self.note(entry, 0, entry.paged.outgoing)
        return entry, await self.answer(entry, step)

    async def rescue(self, entry, excess):
        repacked = self.pager.rescue(entry.paged, excess)
        if repacked is not None:
            await self.call_log.decide(entry, self.now, [repacked], entry.paged.blobs)

    def note(self, entry, leg, outgoing):
        paged = entry.paged
        items, slots = entry.incoming.request.items, []
        for slot in paged.table.slots:
            own = None if slot.raw is not None else bytes(items[slot.item])
            slots.append((own, [page.handle for page in slot.pages if page.stub]))
            self.remember(slot.raw if own is None else own, slot.pages)
        repacked = not leg and any(isinstance(event, Repacked | ToolsDecided) for event in paged.events)
        is_paged = not paged.full and not paged.untouched
        tool = paged.table.tool if paged.tool_slot is not None else ""
        assert outgoing.size == len(outgoing.body())
        self.sent.append(Sent(entry, leg, outgoing.body(), slots, tool, repacked, is_paged))

    def remember(self, raw, pages):
        """What each handle that is shown stands for; a page that came back wholly stands for what it was."""
        texts = {page_span.key: page_span.text for page_span in self.dialect.page_spans(raw)}
        back = {page.handle for page in pages if page.stub and page.origins and page.whole}
        assert back <= self.handles.keys()
        self.handles |= {page.handle: texts[page.key] for page in pages if page.stub and page.handle not in back}

    async def answer(self, entry, step):
        """What the client gets, through as many legs as the model asks for."""
        paged, table = entry.paged, entry.paged.table
        asked = json.loads(entry.incoming.request.body)
        if not table.tool or paged.tool_slot is None:
            return json.dumps(self.wire.whole(Turn(self.calls, asked, step.say, Usage()))).encode()
        stitcher = self.dialect.stitcher(table.tool, Guard(table, entry.paged.tools))
        outgoing = paged.outgoing
        for leg, say in enumerate(self.says(step, paged), 1):
            turn = Turn(self.calls, asked, say, Usage(), 0 if say is step.say else leg)
            stitcher.take(json.dumps(self.wire.whole(turn)).encode())
            held = stitcher.held()
            following = follows(held, leg - 1)
            if following is not Next.FINISH:
                kept = await self.keep(entry, stitcher, held, leg)
            if following is not Next.RESEND:
                break
            stitcher.go_on()
            outgoing = outgoing.followed_by(self.dialect.appended(kept))
            self.note(entry, leg, outgoing)
        return stitcher.finish()

    def says(self, step, paged):
        table, shown = paged.table, sorted(paged.table.shown)
        for ask in step.asks:
            handles = [
                shown[number % len(shown)] if number < 5 and shown else "pg_0123456789abcdef" for number in ask.pages
            ]
            fetch = Call(table.tool, {"pages": handles})
            imitation = [Call("write", {"path": "a.py", "content": f"[{handles[0]}: a stub]"})] if ask.imitates else []
            wrong = [Call("extra_1", {"size": "large"})] if ask.is_wrong and is_short(paged.tools, "extra_1") else []
            yield Say(ask.text, [fetch, *(imitation if handles[0] in shown else []), *wrong], ask.reasoning)
        if step.mixed and step.uses and shown:
            fetch = Call(table.tool, {"pages": shown[:2]})
            own = step.say.calls
            yield Say(step.text, [*own[:1], fetch, *own[1:]], step.reasoning)
        yield step.say

    async def keep(self, entry, stitcher, held, number):
        """Answer the held calls, and log the leg, as the server does."""
        table, branch = entry.paged.table, entry.placement.branch.number
        replies = reply(
            held,
            table.tool,
            lambda handle: self.pager.resolve(entry.session.pages, branch, handle),
            lambda call: Guard(table, entry.paged.tools).refusal(call, table.tool),
            limit=100_000,
            rounds=number,
        )
        leg = stitcher.leg(replies.texts)
        said = msgspec.json.encode(leg)
        finished = LegFinished(
            branch=branch,
            call=entry.placement.call,
            attempt=entry.placement.attempt,
            leg=number,
            said=sha256(said).hexdigest(),
            body="",
            size=0,
            pages=list(replies.pages),
            mixed=held.mixed,
        )
        table.apply(finished, leg)
        await self.call_log.decide(entry, self.now, [finished], {sha256(said).digest(): said})
        return leg


def a_law(test):
    """For every wire format, conversation, harness and policy, with marks and without."""
    law = LAW(given(conversations, habits, moods, st.booleans())(test))
    return pytest.mark.parametrize("name", NAMES)(law)


# ---------------------------------------------------------------- laws


@a_law
def test_the_provider_accepts_every_prompt_that_it_would_accept_from_the_client(name, steps, habits, mood, marks):
    for sent in Player(name, habits, mood, marks).play(steps).sent:
        # What was shown as one answer may be none that the provider accepts, where a later leg thinks and the first
        # did not: such a history is sound only as long as the legs are known, and a rewritten one may not be.
        assert problems(name, sent.json) == [] or problems(name, json.loads(sent.client.body))


@a_law
def test_what_no_stub_and_no_hidden_leg_touches_keeps_its_bytes(name, steps, habits, mood, marks):
    for sent in Player(name, habits, mood, marks).play(steps).sent:
        items = [bytes(item) for item in sent.dialect.parse(sent.body).items]
        if not sent.paged:
            assert [plain(item) for item in items] == [plain(item) for item in sent.client.items]
            continue
        for at, (own, handles) in enumerate(sent.slots):
            if own is not None and not handles and not is_carrier(own):
                assert items[at] == own or (is_marked_by_us(sent) and plain(items[at]) == plain(own))
            assert all(handle.encode() in items[at] for handle in handles)
        assert len(items) >= len(sent.slots)


@a_law
def test_system_tools_users_words_and_thoughts_are_never_changed(name, steps, habits, mood, marks):
    for sent in Player(name, habits, mood, marks).play(steps).sent:
        client, out = json.loads(sent.client.body), sent.json
        ours = json.loads(definition(name, sent.tool)) if sent.tool else None
        key = "input" if name == "responses" else "messages"
        client_items, items = client.pop(key), out.pop(key)
        added = [entry for entry in offered(out, items) if entry == ours]
        assert len(added) == (1 if sent.tool and sent.paged else 0)
        sent_tools, offered_tools = without(out, ours).pop("tools", []), client.pop("tools", [])
        assert unmarked({**out, "tools": 0}) == unmarked({**client, "tools": 0})
        for one, whole in zip(sent_tools, offered_tools, strict=True):
            assert unmarked(one) == unmarked(whole) or (sent.paged and is_short_for(one, whole, sent.handles))
        assert words_of(sent, "user") == words_of(sent, "user", client=True)
        assert words_of(sent, "system") == words_of(sent, "system", client=True)
        assert is_within(thoughts_in(client_items), thoughts_in(items))


@a_law
def test_between_repacks_a_prompt_only_grows_as_long_as_the_clients_own_does(name, steps, habits, mood, marks):
    before = {}
    for sent in Player(name, habits, mood, marks).play(steps).sent:
        if not sent.paged or (not sent.tool and any(handles for _, handles in sent.slots)):
            # A call that can't carry the tool is in full, or without it where it would not fit; the next one goes on
            # with the paged prompt before it, unless that has changed meanwhile.
            if sent.repacked or sent.entry.placement.attempt > 1:
                before.pop(sent.branch, None)
            continue
        exact = not (habits.restless or habits.marks or marks)
        now = Prompts(*(prompt_of(sent, body, exact=exact, but_first=habits.rewrites_first) for body in sent.bodies))
        old = before.get(sent.branch)
        if old is not None and not sent.repacked and now.client[: len(old.client)] == old.client:
            is_another_attempt = now.client == old.client and not sent.leg
            assert now.out == old.out[: len(now.out)] if is_another_attempt else now.out[: len(old.out)] == old.out
        before[sent.branch] = now


class Prompts(NamedTuple):
    """A prompt as the client has it, and as it went out."""

    client: list
    out: list


@a_law
def test_every_handle_ever_shown_brings_back_the_whole_text(name, steps, habits, mood, marks):
    player = Player(name, habits, mood, marks).play(steps)
    session = player.sent[-1].entry.session
    for handle, text in player.handles.items():
        assert player.pager.resolve(session.pages, 0, handle) == text
    for sent in player.sent:
        stubs = [handle for _, handles in sent.slots for handle in handles] if sent.paged else []
        assert set(stubs) <= player.handles.keys()
    for table in session.pages.tables.values():
        for handle, schema in table.schemas.items():
            assert json.loads(player.pager.resolve(session.pages, 0, handle))["parameters"] == schema.schema


@pytest.mark.parametrize("name", NAMES)
@LAW
@given(conversations, habits, moods, st.booleans(), st.frozensets(st.integers(1, 9)))
def test_a_session_read_again_from_the_log_goes_on_with_the_same_bytes(name, steps, habits, mood, marks, restarts):
    steady = Player(name, habits, mood, marks).play(steps)
    restarted = Player(name, habits, mood, marks, restarts).play(steps)
    assert [sent.body for sent in restarted.sent] == [sent.body for sent in steady.sent]


@a_law
def test_page_tables_read_again_from_the_log_are_the_live_ones(name, steps, habits, mood, marks):
    player = Player(name, habits, mood, marks).play(steps)
    live = player.sent[-1].entry.session
    again = Rebuilder(dialects.load, player.store.blob).session(live.id, list(player.store.events(live.id)))
    assert again.pages.tables.keys() == live.pages.tables.keys()
    for number, table in live.pages.tables.items():
        assert decisive(again.pages.tables[number]) == decisive(table)


# ---------------------------------------------------------------- what is compared


def decisive(table):
    """All of a table that what goes upstream, now or later, can depend on; its indexes and memos aside."""
    apart = {"read", "expand", "slots", "hidden", "unmarked", "numbers", "tools"}
    told = {one.name: getattr(table, one.name) for one in fields(table) if one.name not in apart and one.name[0] != "_"}
    slots = [(slot.digest, slot.item, slot.raw, slot.size, slot.reasoning, slot.pages) for slot in table.slots]
    hidden = {
        place: (kept.before, kept.ids, kept.answer, msgspec.json.encode(kept.legs))
        for place, kept in table.hidden.items()
    }
    return {**told, "slots": slots, "hidden": hidden, "tools": table.tools and table.tools.encode()}


def unmarked(value):
    """The value without cache marks; one text part and a string are the same content."""
    if isinstance(value, dict):
        kept = {key: unmarked(inner) for key, inner in value.items() if key != "cache_control"}
        content = kept.get("content")
        return {**kept, "content": [{"type": "text", "text": content}]} if isinstance(content, str) else kept
    return [unmarked(inner) for inner in value] if isinstance(value, list) else value


def plain(raw):
    return unmarked(json.loads(bytes(raw)))


def is_marked_by_us(sent):
    return b"cache_control" not in sent.client.body and sent.dialect.name == "messages"


def is_carrier(raw):
    return b"additional_tools" in raw


def offered(out, items):
    yield from out.get("tools") or ()
    for item in items:
        yield from item["tools"] if item.get("type") == "additional_tools" else ()


def without(out, ours):
    tools = [entry for entry in out.get("tools", ()) if unmarked(entry) != ours]
    return {**out, "tools": tools} if "tools" in out else out


def is_short(tools, name):
    return tools is not None and name in tools.shortened


def is_short_for(one, whole, handles):
    """Whether an entry stands for another: all of it but for prose, and a handle that is known."""
    said, told = (tool.get("function", tool) for tool in (one, whole))
    bones = SIZED | {"properties": {"size": {"type": "integer"}}}
    same = {key: value for key, value in said.items() if key not in ("description", "parameters", "input_schema")}
    return (
        same.items() <= told.items()
        and (said.get("parameters") or said.get("input_schema")) == bones
        and said["description"] in {f"Does one thing. [{handle}]" for handle in handles}
    )


def words_of(sent, role, *, client=False):
    """What somebody says in a prompt, in order."""
    items = sent.client.items if client else sent.dialect.parse(sent.body).items
    decoded = [sent.dialect.decode(item) for item in items]
    blocks = [block for message in decoded if message.role == role for block in message.blocks]
    return [block.text for block in blocks if block.kind is Kind.TEXT]


def thoughts_in(items):
    """The thoughts in a prompt, as they are written."""
    blocks = [block for item in items for block in (item, *(item.get("content") or ())) if isinstance(block, dict)]
    thinking = [block for block in blocks if block.get("type") in ("thinking", "reasoning")]
    return [block.get("encrypted_content") or block.get("signature") or block.get("id") for block in thinking]


def is_within(some, many):
    """Whether all of some stand among many, in the same order."""
    left = iter(many)
    return all(one in left for one in some)


def prompt_of(sent, body, *, exact, but_first):
    """The prompt as the provider caches it, piece by piece; without what a harness writes anew with every call."""
    request, given = sent.dialect.parse(body), json.loads(body)
    head = json.dumps(unmarked([given.get("tools"), given.get("system"), given.get("instructions")]))
    items = [bytes(item) if exact else sent.dialect.decode(item).norm for item in request.items]
    return [head if body is sent.body else "", *items[2 if but_first else 0 :]]
