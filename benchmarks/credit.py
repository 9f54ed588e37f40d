"""Measures what the user's account brings to sessions that never pause.

``python -m benchmarks.credit`` plays recorded sessions (folders below ``traces`` in ``--recordings`` or
CTXPAGER_RECORDINGS), each cut at its first pause of more than five minutes, and a made-up session of 120 calls: each
paying for itself, as the first session of a new user, and after a history of 20 sessions.
"""

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import orjson

from benchmarks.policies.play import OURS, RECORDINGS
from benchmarks.policies.publish import ROOT, replaced
from instrumentation.replay import recording_files
from instrumentation.replay.player import Player, PolicyOutcome
from instrumentation.replay.prepared_recording import Caching, Prepared
from instrumentation.replay.recording import Recording
from pager.paging.credit import REST, CreditLimits, UserAccount, first_credit
from pager.paging.policy_loader import load_policy
from pager.pricing.rates import Models, in_force
from pager.wire.dialects import load as load_dialect

MARK = "credit"
COMMAND = "CTXPAGER_RECORDINGS=DIR python -m benchmarks.credit --write"
PAUSE = 300.0
HISTORY = 20  # sessions that a known user has had
CALLS = 120
SETS = ("entire-cli", "livemcpbench", "tau2", "agentdojo")
MADE_UP = "made up"
PRICES = "anthropic"
MARKED = Caching(marks=True, lifetime=PAUSE)
LIMITS = CreditLimits()


class CreditFigures(NamedTuple):
    """What a set of sessions costs with one kind of user, against doing nothing."""

    sessions: int
    calls: int
    change: float
    worst: float


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Play all sets, print the table, and write it into the docs if that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given = os.environ.get(RECORDINGS)
    parser.add_argument("--recordings", type=Path, metavar="DIR", default=Path(given) if given else None)
    parser.add_argument("--write", action="store_true", help="bring docs/credit.md up to date")
    options = parser.parse_args(arguments)
    if options.recordings is None:
        parser.error(f"there are no sessions to play: give --recordings or {RECORDINGS}")
    models, traces = in_force(PRICES, {}), options.recordings / "traces"
    known = _known(traces / SETS[0], models)
    rows = {name: _row(map(unbroken, _recordings(traces / name)), models, known) for name in SETS}
    with tempfile.TemporaryDirectory() as folder:
        rows[MADE_UP] = _row([recording_files.load(made_up(Path(folder) / "s.jsonl"))], models, known)
    block = table(rows)
    print(block)
    if options.write:
        page = root / "docs" / "credit.md"
        page.write_text(replaced(page.read_text(), block, MARK))
    return 0


def _recordings(folder: Path, most: int = 0) -> Iterator[Recording]:
    for path in recording_files.files(folder)[: most or None]:
        yield recording_files.load(path)


def unbroken(recording: Recording) -> Recording:
    """The session up to its first pause."""
    gaps = (after.at - before.at > PAUSE for before, after in pairwise(recording.steps))
    end = next((at for at, long in enumerate(gaps, 1) if long), len(recording.steps))
    return replace(recording, steps=recording.steps[:end])


def made_up(path: Path) -> Path:
    """A session of 120 calls ten seconds apart: each reads another file, and some quote one of the last few."""
    chance, files = random.Random(1), []
    rows: list[object] = [
        {"session": MADE_UP, "model": "claude-opus-4-5"},
        {"role": "user", "content": "Do it. " * 4_000},
    ]
    for call in range(CALLS):
        files.append([f"def part_{call}_{line}_{chance.randrange(10**8)}(): return {line}" for line in range(60)])
        quoted = chance.choice(chance.choice(files[-4:-1])) if call % 4 == 3 else "Next."
        function = {"name": "read", "arguments": orjson.dumps({"path": f"file_{call}.py"}).decode()}
        made = [{"id": f"c{call}", "type": "function", "function": function}]
        meta = {"ts": 1_700_000_000.0 + 10 * call}
        rows.append({"role": "assistant", "content": quoted, "tool_calls": made, "_meta": meta})
        rows.append({"role": "tool", "tool_call_id": f"c{call}", "content": "\n".join(files[-1])})
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


def _played(recording: Recording, models: Models, credit: float | None) -> tuple[PolicyOutcome, float]:
    """What becomes of a session, and what it would cost otherwise."""
    prepared, policy = Prepared(recording, load_dialect(recording.dialect), cache=MARKED), load_policy(OURS, {})
    player = Player(prepared, lambda _: policy, models, credit=credit)
    player.play()
    return player.outcome(OURS), prepared.bills(models)[-1].cost


def _known(folder: Path, models: Models) -> float:
    """What a session is lent after a history of whole sessions."""
    account = UserAccount(LIMITS)
    for number, recording in enumerate(_recordings(folder, HISTORY)):
        lent = account.lend(str(number), 2 * REST * number).lent.dollars
        account.loans[str(number)].totals = _played(recording, models, lent)[0].totals
    return account.lend("next", 2 * REST * HISTORY).lent.dollars


def _row(recordings: Iterable[Recording], models: Models, known: float) -> list[CreditFigures]:
    """A set with each kind of user: none whose account is shared, a new one, and a known one."""
    sessions = [recording for recording in recordings if len(recording.steps) > 1]
    found = []
    for credit in (None, first_credit(LIMITS), known):
        played = [_played(recording, models, credit) for recording in sessions]
        cost, before = sum(one.charged.cost for one, _ in played), sum(before for _, before in played)
        worst = max(one.charged.cost / before - 1 for one, before in played)
        found.append(CreditFigures(len(played), sum(len(one.steps) for one in sessions), cost / before - 1, worst))
    return found


def table(rows: dict[str, list[CreditFigures]]) -> str:
    """A line for each set, and how they were made."""
    head = (
        "| sessions without a pause | calls | each pays for itself | new user | worst | after 20 sessions | worst |\n"
        "|---|--:|--:|--:|--:|--:|--:|"
    )
    lines = [
        f"| {name}, {alone.sessions} | {alone.calls:,} | {100 * alone.change:+.1f} % | {100 * new.change:+.1f} % | "
        f"{100 * new.worst:+.1f} % | {100 * known.change:+.1f} % | {100 * known.worst:+.1f} % |"
        for name, (alone, new, known) in rows.items()
    ]
    made = f"""
Each recorded session up to its first pause of five minutes, played again under `{OURS}` as a client with marks of 5
minutes would be billed, at the prices of Claude up to 5 (read 0.1); *new user*: the first session of a fresh account;
*worst*: the session that costs most more. By `{COMMAND}`.
"""
    return "\n".join([head, *lines, made])


if __name__ == "__main__":
    sys.exit(main())
