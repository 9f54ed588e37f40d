"""Each recorded client's calls end up in the sessions and branches that a person would name."""

import asyncio
import gzip
import json
from pathlib import Path

import pytest
from recordings import FOLDER, REQUESTS

from pager.log.stores import open_store
from pager.proxy.call_log import CallLog
from pager.proxy.log_records import Incoming, Outcome
from pager.request_values import Answer, ToolUse
from pager.wire import dialects

BY_PATH = {dialect.path: dialect for dialect in map(dialects.load, dialects.names())}
pytestmark = [
    pytest.mark.recorded,
    pytest.mark.skipif(not FOLDER, reason="CTXPAGER_RECORDINGS names no folder with recorded requests"),
]

# Session letter, branch, call; "#2" is a second attempt. Every other recording is one session with one branch.
NAMED = {
    # a title first, then the conversation
    "goose/basic": "A0.1 A1.1 A1.2 A1.3 A1.4",
    "goose/mixunk": "A0.1 A1.1 A1.2",
    "goose/unknown": "A0.1 A1.1 A1.2 A1.3",
    "goose/reason": "A0.1 A1.1 A1.2 A1.3",
    "goose/stitch": "A0.1 A1.1 A1.2 A1.3",
    "goose/long30": "A0.1 " + " ".join(f"A1.{call}" for call in range(1, 32)),
    # an answer that broke off is asked for again with a message that is dropped later
    "qwen/drop": "A0.1 A0.2 A0.3 A0.4 A0.5",
    "sdk-anthropic/unknown": "A0.1 A0.1#2 A0.2 A0.3",
    "opencode*/basic": "A0.1 A1.1 A1.2 A1.3 A1.4",
    "opencode*/reason": "A0.1 A1.1 A1.2 A1.3",
    "opencode*/stitch": "A0.1 A1.1 A1.2 A1.3",
    "opencode*/unknown": "A0.1 A1.1 A1.2 A1.3",
    "opencode/mixunk": "A0.1 A1.1 A1.2",
    "opencode/drop": "A0.1 A1.1 A1.1#2 A1.2 A1.3 A1.4",
    "opencode-anthropic/long30": "A0.1 " + " ".join(f"A1.{call}" for call in range(1, 32)),
    "opencode/long30": "A0.1 " + " ".join(f"A1.{call}" for call in range(1, 33)),
    # the sub-agent is a branch of its parent's session, and the parent goes on afterwards
    "codex/subagent": "A0.1 A0.2 A1.1 A1.2 A0.3",
    "opencode/subagent": "A0.1 A1.1 A2.1 A2.2 A1.2",
    "qwen/subagent": "A0.1 A0.2 B0.1 B0.2 A0.3",  # nothing that it sends ties its sub-agent to the parent
    # a summary, then the compacted history, twice over
    "opencode/bigusage": "A0.1 A1.1 A2.1 A3.1 A4.1 A3.1#2 A3.2 A3.3 A3.4",
    "opencode/err400": "A0.1 A1.1 A2.1 A3.1 A4.1 A3.1#2 A3.2 A3.3 A3.4",
    # the main line of 31 calls, resumed under a new date; then the memory agent and its dream, taking turns
    "qwen/long30": " ".join(f"A0.{call}" for call in range(1, 33))
    + " A1.1 B0.1 A1.2 B0.2 A1.3 B0.3 A1.4 B0.4 A1.5 B0.5 B0.6 B0.7 B0.8",
    # a commit message, a last summary: side requests without anything that ties them to the session
    "aider/text-aider*": "A0.1 B0.1",
    "smolagents/basic": "A0.1 A0.2 A0.3 A0.4 A0.5 A0.6 B0.1",
    # its errors are written into the one user message, so that no message is ever sent twice
    "smolagents/unknown": "A0.1 B0.1 C0.1 D0.1 E0.1 F0.1 G0.1",
}
RETRIED = {"err429": 3, "err429h": 3, "err500": 3, "err529": 3, "unthread": 2, "unthread-unk": 2, "drop": 2}


def one_branch(scenario, calls):
    """One conversation whose first call was tried as often as the scenario made it fail."""
    tries = min(RETRIED.get(scenario, 1), calls)
    first = [f"A0.1#{number}" if number > 1 else "A0.1" for number in range(1, tries + 1)]
    return " ".join(first + [f"A0.{call}" for call in range(2, calls - tries + 2)])


def requests(path):
    for line in gzip.decompress(path.read_bytes()).splitlines():
        row = json.loads(line)
        dialect = BY_PATH.get(row["path"].removeprefix("/v1"))
        if dialect is not None and row["method"] == "POST" and isinstance(row["body"], dict):
            headers = row["headers"].items() if isinstance(row["headers"], dict) else row["headers"]
            yield dialect, row["body"], {name.lower(): value for name, value in headers}, row["reply"]


def answer_of(body, reply, later, seen):
    """The recorded answer, with the ids that later requests of the same conversation send back for the first time."""
    if reply["status"] != 200 or reply["what"] not in ("sse", "json"):
        return None
    rest = [other for other in later if opening(other) == opening(body) or follows(other)]
    uses = []
    for at, (name, *_) in enumerate(reply.get("calls", ())):
        call_id = next((found for found in ids_in(rest, name) if found not in seen), "")
        seen.add(call_id)
        uses.append(ToolUse(at, call_id, name, "{}"))
    return Answer(id=next(filter(None, map(follows, rest[:1])), ""), calls=tuple(uses))


def opening(body):
    messages = body.get("messages") or body.get("input")
    return body.get("system"), body.get("instructions"), messages[0] if isinstance(messages, list) else messages


def follows(body):
    """The id of the answer that a request names as the one it follows."""
    return body.get("previous_response_id") or (body.get("thread") or {}).get("previous_message_id", "")


def ids_in(bodies, name):
    """The ids of calls of this tool, in the order in which these requests show them."""
    for body in bodies:
        messages = body.get("messages") or body.get("input")
        for message in messages if isinstance(messages, list) else ():
            content = message.get("content")
            blocks = content if isinstance(content, list) else []
            for call in [message, *(message.get("tool_calls") or ()), *blocks]:
                if call.get("function", call).get("name") == name:
                    yield call.get("call_id") or call.get("id", "")


async def labels(path, restart):
    store = open_store("memory:")
    call_log = CallLog(store, dialects.load, 100)
    rows = list(requests(path))
    letters, told, seen = {}, [], set()
    for number, (dialect, body, headers, reply) in enumerate(rows):
        if restart:
            call_log = CallLog(store, dialects.load, 100)
        parsed = dialect.parse(json.dumps(body).encode())
        entry = await call_log.receive(Incoming(dialect, parsed, "local", headers, dialect.path, "", float(number)))
        letter = letters.setdefault(entry.session.id, chr(ord("A") + len(letters)))
        spot = entry.placement
        told.append(f"{letter}{spot.branch.number}.{spot.call}" + (f"#{spot.attempt}" if spot.attempt > 1 else ""))
        answer = answer_of(body, reply, [row[1] for row in rows[number + 1 :]], seen)
        if answer is not None:
            call_log.answered(entry, answer, Outcome(200, b"{}", 1.0, 1.0, float(number)), 0)
        await call_log.drain()
    return " ".join(told)


@pytest.mark.parametrize("restart", [False, True], ids=["running", "restarted before every call"])
@pytest.mark.parametrize("path", REQUESTS, ids=lambda path: f"{path.parent.name}/{path.name.split('.')[0]}")
def test_calls_are_placed_as_a_person_would(path, restart):
    name = f"{path.parent.name}/{path.name.split('.')[0]}"
    count = len(list(requests(path)))
    patterns = [pattern for pattern in NAMED if Path(name).match(pattern)]
    expected = NAMED[patterns[0]] if patterns else one_branch(name.split("/")[1], count)
    assert asyncio.run(labels(path, restart)) == expected
