"""The fault loop as a conversation: the commands that it yields, and what it is given for them."""

import asyncio
import gzip
import json

import pytest

from pager.log.events import Bypassed, LegFailed, LegFinished
from pager.log.stores import open_store
from pager.paging.pager import Pager
from pager.paging.pages.stub import HANDLE
from pager.paging.policy_choice import Arms, NamedPolicy
from pager.paging.policy_loader import load_policy
from pager.pricing.rates import in_force
from pager.proxy.attempt import Attempt
from pager.proxy.call_log import CallLog
from pager.proxy.hidden_leg_retries import RetryLimits
from pager.proxy.log_records import Incoming
from pager.proxy.page_in_loop import (
    Append,
    FaultLoop,
    InThread,
    LegBroke,
    LoopSettings,
    PassOn,
    ReadBody,
    ReadChunk,
    ResponseHead,
    SendLeg,
    Show,
    StartReply,
    Wait,
)
from pager.wire import dialects

CHAT = dialects.load("chat")
RESULT = "".join(f"line {number} of what the tool found\n" for number in range(200))
JSON = {"content-type": "application/json"}


def turn(number):
    call = {"id": f"call_{number}", "type": "function", "function": {"name": "run", "arguments": f'{{"n": {number}}}'}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": f"{number}\n{RESULT}"},
    ]


def body(turns):
    messages = [{"role": "user", "content": "go"}, *(message for number in range(turns) for message in turn(number))]
    tools = [{"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}]
    return json.dumps({"model": "gpt-4o", "messages": messages, "tools": tools}).encode()


def said(**message):
    choice = {"index": 0, "message": {"role": "assistant", "content": None, **message}, "finish_reason": "stop"}
    return json.dumps({"id": "a", "object": "chat.completion", "model": "gpt-4o", "choices": [choice]}).encode()


def asks_for(handle):
    function = {"name": "page_in", "arguments": json.dumps({"handles": [handle]})}
    return said(tool_calls=[{"id": "hidden", "type": "function", "function": function}])


class Talk:
    """A fault loop of the last of some calls, and everything that it asked for."""

    def __init__(self, largest=1 << 20):
        rule = NamedPolicy("fifo_age", load_policy("fifo_age", {"age": 2}))
        pager = Pager(Arms(rule), in_force("", {}), dialects.load, marks=False)
        call_log = CallLog(open_store("memory:"), dialects.load, 10, pager)

        async def play():
            for turns in range(8):
                incoming = Incoming(CHAT, CHAT.parse(body(turns)), "local", {"x-session-id": "s"}, "/", "", turns)
                call = await call_log.receive(incoming)
            return call

        call = asyncio.run(play())
        self.attempt = Attempt(keep=1 << 20)
        settings = LoopSettings(RetryLimits(2, 60.0), largest, lambda: 0.0, lambda: 0.0, lambda: 0.0)
        self.loop = FaultLoop(call, call.paged, body(7), pager, self.attempt, settings)
        self.flow = self.loop.flow()
        self.asked, self.headers = [], {}
        self.handle = HANDLE.findall(call.paged.outgoing.body().decode())[0]

    def play(self, *responses):
        """Give these responses, one for each request; how the flow ended, None where it goes on."""
        left, result, data = list(responses), None, b""
        while True:
            try:
                command = self.flow.throw(result) if isinstance(result, LegBroke) else self.flow.send(result)
            except StopIteration as end:
                return end.value
            self.asked.append(command)
            result = None
            match command:
                case SendLeg():
                    self.attempt.begin_leg()
                    response = left.pop(0)
                    if isinstance(response, LegBroke):
                        result = response
                        continue
                    status, data = response
                    self.attempt.status, self.attempt.headers = status, [(b"content-type", b"application/json")]
                    result = ResponseHead(status, JSON | self.headers)
                case ReadBody(limit):
                    read = len(data) if limit is None else limit + 1  # no more than it takes to know that it is longer
                    result, data = data[:read], data[read:]
                case ReadChunk():
                    result, data = data, b""
                case InThread():
                    result = command.work()

    def of(self, kind):
        return [command for command in self.asked if isinstance(command, kind)]

    def events(self, kind):
        return [event for append in self.of(Append) for event in append.events if isinstance(event, kind)]


@pytest.fixture
def talk():
    return Talk()


def test_a_page_that_the_model_asks_for_is_durable_before_the_next_request_goes_out(talk):
    assert talk.play((200, asks_for(talk.handle)), (200, said(content="done")))
    kinds = [type(command) for command in talk.asked]
    assert kinds == [SendLeg, ReadBody, InThread, Append, SendLeg, ReadBody, StartReply, Show]
    (leg,) = talk.events(LegFinished)
    assert leg.pages == [talk.handle]
    first, second = talk.of(SendLeg)
    assert b"line 199" in second.body[len(first.body) - 200 :]
    (shown,) = talk.of(Show)
    assert b"done" in shown.data
    assert b"page_in" not in shown.data
    assert (talk.loop.rounds, talk.loop.hidden) == (1, {"hidden"})


def test_a_request_that_is_refused_goes_out_as_the_client_wrote_it(talk):
    assert talk.play((400, b'{"error": {"message": "unknown tool"}}'), (200, said(content="done")))
    paged, own = talk.of(SendLeg)
    assert (paged.own_bytes, own.own_bytes, own.body) == (False, True, body(7))
    (bypassed,) = talk.events(Bypassed)
    assert (bypassed.reason, bypassed.detail) == ("refused", '400: {"error": {"message": "unknown tool"}}')
    assert talk.loop.sent == ""


@pytest.mark.parametrize("failure", [(529, b"{}"), LegBroke("reset")], ids=["status", "connection"])
def test_a_hidden_leg_that_fails_is_sent_again_after_a_while(talk, failure):
    assert talk.play((200, asks_for(talk.handle)), failure, (200, said(content="done")))
    assert [wait.seconds for wait in talk.of(Wait)] == [0.5]
    (failed,) = talk.events(LegFailed)
    assert (failed.leg, failed.wait) == (2, 0.5)
    _, second, third = talk.of(SendLeg)
    assert second == third


def test_a_first_leg_that_fails_is_the_clients_own_to_repeat(talk):
    with pytest.raises(LegBroke, match="reset"):
        talk.play(LegBroke("reset"))
    assert [type(command) for command in talk.asked] == [SendLeg]


def test_an_error_that_stays_reaches_the_client_as_it_came(talk):
    assert talk.play((200, asks_for(talk.handle)), *[(529, b"busy")] * 3)
    assert [type(command) for command in talk.asked][-2:] == [StartReply, Show]
    assert talk.of(Show)[-1].data == b"busy"
    assert [failed.wait for failed in talk.events(LegFailed)] == [0.5, 1.0, None]


def passes_on(talk, answer):
    """Whether the client gets the beginning of an answer as it came, and its rest unread."""
    assert talk.play((200, answer))
    (begun,) = talk.of(Show)
    return answer.startswith(begun.data) and [type(command) for command in talk.asked][-1] is PassOn


def test_an_answer_in_one_piece_is_read_up_to_the_limit_and_else_passed_on():
    talk = Talk(largest=2_000)
    assert passes_on(talk, said(content="x" * 10_000))
    assert [len(command.data) for command in talk.of(Show)] == [2_001]
    assert not passes_on(Talk(largest=20_000), said(content="x" * 10_000))


def test_an_answer_in_one_piece_is_unpacked_up_to_the_limit_and_else_passed_on():
    answer = gzip.compress(said(content="x" * 10_000))
    for largest, passed_on in ((2_000, True), (20_000, False)):
        talk = Talk(largest)
        talk.headers = {"content-encoding": "gzip"}
        assert passes_on(talk, answer) is passed_on
        assert b"".join(talk.attempt.chunks) == (answer if passed_on else said(content="x" * 10_000))
