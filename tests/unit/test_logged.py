"""Sessions of the log as they are played again."""

import asyncio
import json

import pytest
from chat_items import result, user

from benchmarks.optimum.oracles import ORACLES
from instrumentation.accounting.billing import tokens_in
from instrumentation.replay import recording_from_log
from instrumentation.replay.player import Player
from instrumentation.replay.prepared_recording import Prepared
from pager.log.events import Bypassed, Repacked, ToolsDecided
from pager.log.stores import open_store
from pager.paging.pager import Pager
from pager.paging.policy_choice import Arms, NamedPolicy
from pager.paging.policy_loader import load_policy
from pager.pricing.rates import in_force
from pager.proxy.call_log import CallLog
from pager.proxy.log_records import Incoming, Outcome
from pager.request_values import Answer, ToolUse, Usage
from pager.wire.dialects import load

OPTIMUM = next(one for one in ORACLES if one.name == "optimum")
MODELS = in_force("anthropic", {})
TOOLS = [{"type": "function", "function": {"name": "read"}}]
CHAT = load("chat")


def says(text="I see."):
    return {"role": "assistant", "content": text}


def calls(call_id, **arguments):
    function = {"name": "read", "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def page(name):
    return "\n".join(f"line {at} of the file {name} as it was read" for at in range(60))


def many_tools(name):
    """Tools of which much is said, and which are hardly ever called."""
    said = "Does what its name says. " + "There is much more to be said of it, which hardly anybody needs. " * 8
    schema = {"type": "object", "properties": {"path": {"type": "string", "description": said}}}
    return [
        {"type": "function", "function": {"name": f"{name}_{at}", "description": said, "parameters": schema}}
        for at in range(40)
    ]


def answer_body(message, finish="stop"):
    return json.dumps({"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": finish}]}).encode()


class Proxy:
    """A call log over a store, with a policy or none."""

    def __init__(self, folder, policy=None):
        self.store = open_store("memory:")
        pager = Pager(Arms(NamedPolicy("test", policy)), MODELS, load, marks=False) if policy else None
        self.call_log = CallLog(self.store, load, 10, pager)
        self.at = 0.0

    def call(
        self, *messages, gap=10.0, says=None, usage=None, fails=False, raw=None, dialect=CHAT, headers=None, **more
    ):
        """One call, answered with this message; its session's id."""
        self.at += gap
        body = json.dumps({"model": "claude-opus-4-5", "messages": messages, "tools": TOOLS, **more}).encode()
        return asyncio.run(self._play(dialect, body, says, usage, fails, raw, headers or {}))

    async def _play(self, dialect, body, says, usage, fails, raw, headers):
        known = {"x-session-id": "one", "user-agent": "some-cli/1 linux", **headers}
        incoming = Incoming(dialect, dialect.parse(body), "local", known, dialect.path, "", self.at)
        entry = await self.call_log.receive(incoming)
        message = says or {"role": "assistant", "content": "Yes."}
        uses = [
            ToolUse(at, one["id"], one["function"]["name"], one["function"]["arguments"])
            for at, one in enumerate(message.get("tool_calls", ()))
        ]
        outcome = Outcome(500 if fails else 200, raw if raw is not None else answer_body(message), 1.0, 2.0, self.at)
        if fails:
            self.call_log.failed(entry, "status", "busy", outcome)
        else:
            answer = Answer(text=message["content"] or "", calls=tuple(uses), usage=usage)
            self.call_log.answered(entry, answer, outcome, 0)
        await self.call_log.drain()
        return entry.session.id

    def read(self):
        (name,) = recording_from_log.names(self.store)
        (recording,) = recording_from_log.load(self.store, name, load)
        return recording


@pytest.fixture
def proxy(tmp_path):
    return Proxy(tmp_path)


def long_session(proxy, **options):
    """A session of many reads; ``options`` give the members of each call's request by its number."""
    said = [user("do it")]
    for number in range(24):
        asked = calls(f"c{number}", path=f"src/{number}.py")
        proxy.call(*said, says=asked, **{name: value(number) for name, value in options.items()})
        said += [asked, result(f"c{number}", page(number) * 3)]
    prepared = Prepared(proxy.read(), load("chat"))
    before = prepared.unpaged(MODELS)
    return before, {one.policy: one.charged.cost / before.cost - 1 for one in OPTIMUM.oracle(prepared, MODELS)}


def test_options_of_a_request_are_no_part_of_its_prompt(tmp_path):
    plain = long_session(Proxy(tmp_path / "a"))
    options = {
        "stream": lambda number: number % 2 == 0,
        "max_tokens": lambda number: 10**number,
        "metadata": lambda number: {"call": str(number)},
    }
    before, found = long_session(Proxy(tmp_path / "b"), **options)
    assert before.cached == pytest.approx(plain[0].cached, rel=0.001)
    assert before.cost == pytest.approx(plain[0].cost, rel=0.01)
    assert found == pytest.approx(plain[1], rel=0.02)
    assert -0.9 < found["ideal"] < found["bound"] <= found["optimum"] < 0


def test_another_set_of_tools_is_another_prompt_and_the_optimum_knows_it(tmp_path):
    several = [TOOLS, [*TOOLS, *many_tools("more")]]
    before, found = long_session(Proxy(tmp_path), tools=lambda number: several[number % 2])
    assert before.cached > 0
    assert -0.9 < found["ideal"] <= found["bound"] <= found["optimum"] <= 0


def test_marks_that_move_leave_the_head_the_same(tmp_path):
    proxy = Proxy(tmp_path)
    block = {"type": "text", "text": "Be brief."}
    marked = {**block, "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    for system in ([block], [marked]):
        proxy.call(user("do it"), dialect=load("messages"), system=system, max_tokens=9, raw=b"{}")
    first, second = proxy.read().steps
    assert first.head == second.head != b""


def test_a_call_is_read_as_its_client_sent_it(proxy):
    name = proxy.call(user("do it"), says=calls("c1", path="src/a.py"), usage=Usage(100, output=9), max_tokens=900)
    proxy.call(user("do it"), calls("c1", path="src/a.py"), result("c1", "lines"))
    recording = proxy.read()
    first, second = recording.steps
    assert (recording.name, recording.dialect, recording.harness) == (name, "chat", "some-cli/1")
    assert [json.loads(raw) for raw in (*first.new, *second.new)] == [
        user("do it"),
        calls("c1", path="src/a.py"),
        result("c1", "lines"),
    ]
    assert (first.said, first.output, first.reserve, first.tools) == ("\nsrc/a.py", 9, 900, frozenset({"read"}))
    assert (second.keep, second.said, second.output, second.reserve) == (1, "Yes.", tokens_in(4), 0)
    assert [(step.at, step.model, step.answered) for step in recording.steps] == [
        (10.0, "claude-opus-4-5", True),
        (20.0, "claude-opus-4-5", True),
    ]


def test_a_call_has_the_tools_that_it_offers_and_those_that_its_answer_calls(proxy):
    proxy.call(user("do it"), says=calls("c1", path="src/a.py"))
    proxy.call(user("do it"), calls("c1", path="src/a.py"), result("c1", "lines"), tools=many_tools("other"))
    recording = proxy.read()
    first, second = recording.steps
    assert [one.tool.name for one in first.offers.tools] == ["read"]
    assert [one.tool.name for one in second.offers.tools][:2] == ["other_0", "other_1"]
    assert (first.called, second.called, recording.tenant) == (("read",), (), "local")


def test_a_call_that_goes_out_in_full_has_its_tools_all_the_same(proxy):
    proxy.call(user(), tool_choice={"type": "function", "function": {"name": "read"}})
    (step,) = proxy.read().steps
    assert (step.tools, [one.tool.name for one in step.offers.tools]) == (None, ["read"])


def test_tools_that_stand_in_an_item_are_left_alone(proxy):
    item = {"type": "additional_tools", "tools": [{"type": "function", "name": "read", "parameters": {}}]}
    body = {"input": [item, user()], "store": False, "tools": []}
    proxy.call(dialect=load("responses"), raw=b'{"output": []}', **body)
    (step,) = proxy.read().steps
    assert (step.offers, step.tools) == (None, frozenset({"read"}))


def test_what_stands_outside_of_the_items_is_counted(proxy):
    proxy.call(user("do it"))
    body = json.dumps({"model": "claude-opus-4-5", "messages": [user("do it")], "tools": TOOLS}).encode()
    assert proxy.read().steps[0].outside == len(body) - len(json.dumps(user("do it")))


def test_a_streamed_answer_is_read(proxy):
    chunk = {"id": "x", "choices": [{"index": 0, "delta": {"content": "Hello."}, "finish_reason": "stop"}]}
    proxy.call(user(), raw=b"data: " + json.dumps(chunk).encode() + b"\n\ndata: [DONE]\n\n")
    assert proxy.read().steps[0].said == "Hello."


def test_an_answer_that_cant_be_read_said_nothing(proxy):
    proxy.call(user(), raw=b'{"nothing": 1}')
    assert proxy.read().steps[0].said == ""


def test_calls_that_the_client_never_saw_were_not_said(proxy):
    proxy.call(user(), raw=answer_body(calls("hidden", path="src/secret.py"), "tool_calls"))
    assert "secret" not in proxy.read().steps[0].said


def test_an_attempt_that_failed_is_not_answered(proxy):
    proxy.call(user(), fails=True)
    proxy.call(user())
    assert [(step.attempt, step.answered, step.keep, step.new) for step in proxy.read().steps[1:]] == [(2, True, 1, ())]
    assert not proxy.read().steps[0].answered


def test_branches_come_with_their_forks(proxy):
    proxy.call(user("a"))
    proxy.call(user("a"), says(), user("b"))
    proxy.call(user("a"), says(), user("c"))
    proxy.call(user("else"))
    found = [(step.branch, step.parent, step.fork_call, step.keep, len(step.new)) for step in proxy.read().steps]
    assert found == [(0, None, 0, 0, 1), (0, None, 0, 1, 2), (1, 0, 1, 2, 1), (2, None, 0, 0, 1)]


def test_a_request_that_can_carry_no_tool_is_marked(proxy):
    proxy.call(user(), tool_choice={"type": "function", "function": {"name": "read"}})
    assert proxy.read().steps[0].tools is None


def test_a_call_that_had_to_go_out_in_full_is_marked(tmp_path):
    proxy = Proxy(tmp_path, load_policy("keep_all"))
    proxy.call(user(), headers={"x-pager-bypass": "1"})
    assert any(isinstance(row.event, Bypassed) for row in proxy.store.events())
    assert proxy.read().steps[0].tools is None


def test_a_request_that_could_not_be_read_has_no_items(proxy):
    body = b"no JSON at all"

    async def play():
        request = CHAT.parse(b'{"model": "m", "messages": []}')
        opaque = type(request)(
            **{
                **{name: getattr(request, name) for name in request.__slots__},
                "body": body,
                "members": {},
                "items": (),
                "starts": (),
                "separator": None,
                "digests": (),
            }
        )
        incoming = Incoming(CHAT, opaque, "local", {"x-session-id": "one"}, CHAT.path, "", 1.0, "not JSON")
        await proxy.call_log.receive(incoming)
        await proxy.call_log.drain()

    asyncio.run(play())
    (step,) = proxy.read().steps
    assert (step.new, step.outside, step.tools, step.answered) == ((), len(body), None, False)


def test_a_session_in_two_wire_formats_is_two_recordings(proxy):
    proxy.call(user("a"))
    proxy.call(user("a"), dialect=load("messages"), max_tokens=5)
    (name,) = recording_from_log.names(proxy.store)
    found = recording_from_log.load(proxy.store, name, load)
    assert [(one.dialect, one.name, len(one.steps)) for one in found] == [
        ("chat", f"{name} (chat)", 1),
        ("messages", f"{name} (messages)", 1),
    ]


# ---- the law: played under the policy of then, a session is decided as it was


def history(length):
    """A session that reads files, one a call, and goes back to the first ones now and then."""
    messages = [user("do it")]
    for at in range(length):
        messages += [
            calls(f"c{at}", path=f"src/file_{at}.py"),
            result(f"c{at}", page(f"number_{at % 7}") * (1 + at % 3)),
        ]
    return messages


@pytest.mark.parametrize("policy", ["fifo_age", "lru", "cost_aware", "mask_recent"])
def test_played_under_the_same_policy_a_session_is_decided_as_it_was(tmp_path, policy):
    options = {"lru": {"capacity": 4_000}, "mask_recent": {"keep": 3}}.get(policy, {})
    proxy = Proxy(tmp_path, load_policy(policy, options))
    messages = history(40)
    for at in range(40):
        gap = 400.0 if at % 11 == 10 else 10.0
        proxy.call(*messages[: 1 + 2 * at], says=messages[1 + 2 * at], gap=gap)
    live = [row.event for row in proxy.store.events() if isinstance(row.event, Repacked)]
    prepared = Prepared(proxy.read(), load("chat"))
    player = Player(prepared, lambda _: load_policy(policy, options), MODELS)
    player.play()
    again = player.tally.repacked
    assert live
    assert [(one.branch, one.call, one.pages, one.tool) for one in again] == [
        (one.branch, one.call, one.pages, one.tool) for one in live
    ]


def test_played_again_the_tools_of_a_session_are_sent_as_they_were(tmp_path):
    proxy = Proxy(tmp_path, load_policy("cost_aware"))
    messages = history(20)
    for at in range(20):
        tools = [*TOOLS, *many_tools("other" if at < 12 else "later")]
        proxy.call(*messages[: 1 + 2 * at], says=messages[1 + 2 * at], tools=tools)
    live = [row.event for row in proxy.store.events() if isinstance(row.event, ToolsDecided)]
    player = Player(Prepared(proxy.read(), load("chat")), lambda _: load_policy("cost_aware"), MODELS)
    player.play()
    assert [(one.call, one.slim) for one in live] == [(1, 40), (13, 40)]
    assert player.tally.tools == live
