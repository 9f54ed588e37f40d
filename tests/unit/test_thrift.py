"""cost_aware on sessions made to harm it: the model asks again for all that a pause let it evict."""

import json
import random
from datetime import UTC, datetime

import pytest

from instrumentation.replay import recording_files
from instrumentation.replay.player import Player
from instrumentation.replay.prepared_recording import Prepared
from pager.pricing.rates import in_force
from pager.wire.dialects import load
from policies.cost_aware import CostAware

TOLD = 0.25  # "a quarter" in docs/policies.md


def harmful(path, *, files, lines, pauses):
    """A session that reads files, pauses, and then repeats a line of each of them."""
    chance = random.Random(1)
    at = 1_700_000_000.0
    shown = []
    rows = [{"session": "harmful", "model": "claude-sonnet-4-5"}, {"role": "user", "content": "Do it."}]

    def say(text, call_id, tool, result):
        function = {"name": tool, "arguments": json.dumps({"path": call_id})}
        call = {"id": call_id, "type": "function", "function": function}
        rows.append({"role": "assistant", "content": text, "tool_calls": [call], "_meta": {"ts": stamp(at)}})
        rows.append({"role": "tool", "tool_call_id": call_id, "content": result})

    for file in range(files):
        at += 10
        shown.append([f"def made_{file}_{line}_{chance.randrange(10**8)}(): return {line}" for line in range(lines)])
        say("", f"c{file}", "read", "\n".join(shown[-1]))
    for pause in range(pauses):
        at += 1_000
        rows.append({"role": "user", "content": "Go on."})
        for file in range(files):
            at += 10
            say(f"I see\n{chance.choice(shown[file])}", f"d{pause}.{file}", "note", "ok")
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def stamp(at):
    return datetime.fromtimestamp(at, UTC).isoformat()


@pytest.mark.parametrize("prices", ["anthropic", "openai", ""])
@pytest.mark.parametrize("shape", [(20, 60, 1), (20, 200, 1), (20, 100, 3), (12, 100, 1), (40, 100, 1)])
def test_a_session_that_asks_for_everything_again_loses_little_and_no_repack_is_on_credit(tmp_path, shape, prices):
    files, lines, pauses = shape
    recording = recording_files.load(harmful(tmp_path / "s.jsonl", files=files, lines=lines, pauses=pauses))
    models = in_force(prices, {})
    prepared = Prepared(recording, load(recording.dialect))
    funds = {}

    def watch(view):
        funds[view.call] = (view.warm, view.saved - view.spent)

    policy = CostAware()
    player = Player(prepared, lambda _: policy, models, watch)
    player.play()
    outcome, before = player.outcome("cost_aware"), prepared.unpaged(models)
    assert outcome.page_ins > 0, "the session does not test what it is made for"
    assert outcome.charged.cost / before.cost - 1 < TOLD
    for repacked in player.tally.repacked:
        warm, fund = funds[repacked.call]
        assert not warm or repacked.price <= fund + 1
    *_, (_, fund) = funds.values()
    assert fund <= before.cost - outcome.charged.cost + 0.05 * before.cost, "the account must not flatter itself"
