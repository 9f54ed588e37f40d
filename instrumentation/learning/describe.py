"""What was learned, for people: a few lines and small tables for each client program."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from instrumentation.learning.learn import Lesson
from instrumentation.reports.table import columns
from pager.paging.priors import (
    Experience,
    Harness,
    Seen,
    Use,
)
from pager.paging.warmth.returns import Returns
from pager.tools.decide_forms import OFTEN, usual_chance

UNNAMED = "(a client that does not name itself)"
HEAD = ("tool", "pages", "needed", "expected", "multiple")
RETURNED = ("waits for", "ended by", "seen", "expected", "multiple")
USED = ("tool", "sent", "offered", "called", "chance")
ROWS = 40
"""Tools of one client program that are listed one by one."""


def told(lesson: Lesson) -> str:
    """What a lesson says, as text."""
    known = lesson.experience
    lines = [f"could not be read, and is left out: {line}" for line in lesson.unread]
    if not known.version:
        return (
            "\n".join([*lines, "there is nothing to learn yet: sessions count once an hour has passed without a call"])
            + "\n"
        )
    for name in sorted(known.harnesses):
        lines += [*_harness(known, name, known.harnesses[name]), ""]
    for name in sorted(known.tools):
        lines += [*_owner(known, name, known.tools[name]), ""]
    for name in sorted(known.pauses):
        tenant, _, program = name.rpartition(" ")
        lines += [f"{program or UNNAMED} of {tenant}: pauses of five minutes and more, by what was waited for"]
        rows = [_returns(kind, returns) for kind, returns in sorted(known.pauses[name].items())]
        lines += [*_aligned([RETURNED, *rows]), ""]
    for name in sorted(known.lifetimes):
        tenant, dialect, model = name.rsplit(" ", 2)
        lines.append(f"{model} ({dialect}) of {tenant}: a cached prompt outlived {known.lifetimes[name]:,.0f} seconds")
    read = f"{lesson.sessions:,} sessions, events up to {lesson.upto:,}"
    size = f"{len(known.encode()):,} bytes"
    return "\n".join([*lines, f"version {known.version} ({read}; {size})"]) + "\n"


def _harness(known: Experience, name: str, harness: Harness) -> Iterator[str]:
    lengths = harness.lengths
    lasted = f"{len(lengths):,} branches, {median(lengths):g} calls in the median" if lengths else "no branch"
    yield f"{name or UNNAMED}: {lasted}"
    rows = [
        *(_row(known, name, tool, seen, argument=False) for tool, seen in harness.results.items()),
        *(_row(known, name, tool, seen, argument=True) for tool, seen in harness.arguments.items()),
    ]
    if rows:
        yield from _aligned([HEAD, *sorted(rows)])


def _row(known: Experience, name: str, tool: str, seen: Seen, *, argument: bool) -> tuple[str, ...]:
    multiple = known.usual(name, tool, argument=argument)
    return tool, "arguments" if argument else "results", f"{seen.needed:g}", f"{seen.expected:.1f}", f"{multiple:.2f}"


def _owner(known: Experience, name: str, tools: Mapping[str, Use]) -> Iterator[str]:
    """Which tools a tenant's program calls, those called most first."""
    tenant, _, program = name.rpartition(" ")
    yield f"{program or UNNAMED} of {tenant}: {len(tools):,} tools, by the sessions that were offered and called them"
    order = sorted(tools, key=lambda tool: (-tools[tool].called, -tools[tool].offered, tool))
    usual = usual_chance(len(tools))
    chances = [(tool, known.use(tenant, program, tool, usual)) for tool in order[:ROWS]]
    yield from _aligned([USED, *(_used(tool, tools[tool], chance) for tool, chance in chances)])
    if order[ROWS:]:
        yield f"  and {len(order) - ROWS:,} more, called in {tools[order[ROWS]].called:,} sessions at the most"


def _returns(kind: str, returns: Returns) -> tuple[str, ...]:
    return kind, "calls", f"{returns.seen:g}", f"{returns.expected:.1f}", f"{returns.multiple:.2f}"


def _used(tool: str, use: Use, chance: float) -> tuple[str, ...]:
    return tool, "whole" if chance >= OFTEN else "short", f"{use.offered:,}", f"{use.called:,}", f"{chance:.2f}"


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns under each other: words to the left, numbers to the right."""
    return (f"  {line}" for line in columns(rows, left=(0, 1)))
