"""A message in which a key comes twice: it holds no page, and all others are paged as ever."""

import asyncio

import pytest

from pager.cli import main
from pager.log.stores import open_store
from pager.paging.pager import Pager
from pager.paging.policy_choice import Arms, NamedPolicy
from pager.pricing.rates import Models
from pager.proxy.call_log import CallLog
from pager.proxy.log_records import Incoming, Outcome
from pager.request_values import Answer
from pager.wire import dialects
from pager.wire.page_spans import stubbed
from policies.fifo_age import FifoAge

BIG = "some words of a result " * 100
WIRES = {
    "chat": (
        '{"model":"m","tools":[{"type":"function","function":{"name":"read","parameters":{}}}],"messages":[%s]}',
        '{"role":"user","content":"go"}',
        (
            '{"role":"assistant","content":null,"tool_calls":[{"id":"%s","type":"function","function":'
            '{"name":"read","arguments":"{}"}}]}'
        ),
        '{"role":"tool","tool_call_id":"%s","content":"%s"}',
    ),
    "messages": (
        '{"model":"m","max_tokens":9,"tools":[{"name":"read","input_schema":{}}],"messages":[%s]}',
        '{"role":"user","content":"go"}',
        '{"role":"assistant","content":[{"type":"tool_use","id":"%s","name":"read","input":{"path":"a"}}]}',
        '{"role":"user","content":[{"type":"tool_result","tool_use_id":"%s","content":"%s"}]}',
    ),
    "responses": (
        '{"model":"m","store":false,"tools":[{"type":"function","name":"read","parameters":{}}],"input":[%s]}',
        '{"role":"user","content":"go"}',
        '{"type":"function_call","call_id":"%s","name":"read","arguments":"{}"}',
        '{"type":"function_call_output","call_id":"%s","output":"%s"}',
    ),
}
TWICE = {
    "a text": lambda ask, call, result: [call % "d", result % ("d", "ok"), ask.replace('"go"', '"go","content":"on"')],
    "a result": lambda ask, call, result: [
        call % "d",
        (result % ("d", BIG)).replace(f'"{BIG}"', f'"{BIG}","content":"{BIG}","output":"{BIG}"'),
    ],
    "a call": lambda ask, call, result: [
        (call % "d").replace('"read"', f'"read","name":"read","path":"{BIG}","path":"{BIG}"'),
        result % ("d", BIG),
    ],
    "an argument": lambda ask, call, result: [
        (call % "d")
        .replace('"{}"', f'"{{\\"a\\":\\"{BIG}\\",\\"a\\":\\"{BIG}\\"}}"')
        .replace('{"path":"a"}', f'{{"path":"{BIG}","path":"{BIG}"}}'),
        result % ("d", BIG),
    ],
}


def bodies(wire, twice, calls=7):
    """A conversation, call by call; a key comes twice in what the fourth one adds."""
    body, ask, call, result = WIRES[wire]
    items = [ask]
    for number in range(calls):
        items += TWICE[twice](ask, call, result) if number == 3 else []
        items += [call % f"c{number}", result % (f"c{number}", f"{number}: {BIG}")]
        yield (body % ",".join(items)).encode()


def play(store, wire, twice):
    dialect = dialects.load(wire)

    def call_log():
        rule = NamedPolicy("fifo_age", FifoAge(age=2, size=500))
        return CallLog(store, dialects.load, 10, Pager(Arms(rule), Models.load(), dialects.load, marks=True))

    async def played():
        entries, live = [], call_log()
        for number, body in enumerate(bodies(wire, twice)):
            facts = ("local", {"x-session-id": "s"}, dialect.path, "", 10.0 * number)
            entries.append(await live.receive(Incoming(dialect, dialect.parse(body), *facts)))
            live.answered(entries[-1], Answer(text="Yes."), Outcome(200, b"{}", 1.0, 2.0, 10.0 * number), 0)
            await live.drain()
            if number == 4:
                live = call_log()  # as after a restart
        return entries

    return asyncio.run(played())


@pytest.mark.parametrize("twice", TWICE)
@pytest.mark.parametrize("wire", WIRES)
def test_paging_goes_on_and_the_session_can_be_replayed(wire, twice, tmp_path, capsys, at_home):
    store = open_store(f"sqlite:{tmp_path}")
    entries = play(store, wire, twice)
    store.close()
    assert [entry.session.unpaged for entry in entries] == [""] * 7
    table = entries[-1].paged.table
    assert {"c0", "c1", "c2", "c3"} <= {page.call_id for page in table.pages if page.stub}
    assert entries[-1].paged.outgoing.body().count(BIG.encode()) < entries[-1].incoming.request.body.count(BIG.encode())
    assert main.main(["replay", "all", "--data-dir", str(tmp_path), "--policy", "fifo_age"]) == 0
    assert "1 session, 7 calls" in capsys.readouterr().out


@pytest.mark.parametrize("twice", TWICE)
@pytest.mark.parametrize("wire", WIRES)
def test_every_site_can_be_written_to(wire, twice):
    dialect = dialects.load(wire)
    for item in dialect.parse(list(bodies(wire, twice))[-1]).items:
        raw = bytes(item)
        page_spans = dialect.page_spans(raw)
        stubbed(raw, page_spans, {page_span.key: "[pg_0]" for page_span in page_spans})
