"""Studies the sessions of one file; it is what each process does."""

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import msgspec

from instrumentation.accounting import cache_lifetimes
from instrumentation.analyze.session_summary import Session, summed_up
from instrumentation.replay import log_files
from instrumentation.replay.compare import Conditions, Contender
from instrumentation.replay.log_files import Imported, Problems
from instrumentation.replay.prepared import Prepared
from pager.errors import PagerError
from pager.pricing.rates import Models
from pager.wire.dialects import load as load_dialect

EXAMPLES = 3
"""Problems of a file that are told in words."""


@dataclass(frozen=True, slots=True)
class How:
    """How sessions are studied; ``key`` tells it from all other ways."""

    key: str
    contenders: tuple[Contender, ...] = field(default=(), compare=False)
    conditions: Conditions = field(default_factory=Conditions, compare=False)


class Studied(msgspec.Struct, frozen=True):
    """What is in a file: its format, empty if it is not known, and its sessions; ``size`` are the bytes unpacked.

    ``answers`` are the ids of those of its answers that another log may hold a copy of. ``left_out`` counts lines that
    are in no prompt, by the reason.
    """

    format: str = ""
    sessions: tuple[Session, ...] = ()
    lines: int = 0
    size: int = 0
    bad: int = 0
    is_broken: bool = False
    is_unknown: bool = False
    examples: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    left_out: dict[str, int] = {}


def study(path: Path, how: How, copied: frozenset[str] = frozenset()) -> Studied:
    """Read a file and sum its sessions up, one by one; answers that were ``copied`` into it are no calls of its own."""
    problems = Problems(answers=set(copied))
    form, sessions = "", []
    for found in log_files.read(path, problems):
        form = found.format
        session = _session(found, how, problems)
        if session is not None:
            sessions.append(session)
    return Studied(
        format=form or log_files.format_of(path),
        sessions=tuple(sessions),
        lines=problems.lines,
        size=problems.size,
        bad=problems.bad,
        is_broken=bool(problems.broken),
        is_unknown=bool(problems.unknown),
        examples=tuple(told.removeprefix(f"{path}: ") for told in problems.examples[:EXAMPLES]),
        answers=tuple(sorted(problems.answers - copied)),
        left_out=dict(problems.left_out),
    )


def _session(found: Imported, how: How, problems: Problems) -> Session | None:
    """A session summed up; None, and a problem, if it can't be played."""
    recording, conditions = cache_lifetimes.shown(found.recording), how.conditions
    try:
        dialect = load_dialect(recording.dialect)
        prepared = Prepared(recording, dialect, conditions.grace, conditions.tools, conditions.cache)
        return summed_up(prepared, how.contenders, _models(how))
    except (PagerError, RecursionError) as error:
        problems.file(found.path, f"session {recording.name} can't be played: {error}")
        return None


@lru_cache(maxsize=2)
def _models(how: How) -> Models:
    """The table of models, which takes longer to make than most sessions take to play."""
    return how.conditions.rates()
