"""Analyses existing logs, without a proxy: what was sent, what it cost, what was wasted, what paging would save."""

import inspect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from importlib.resources import files as resources
from importlib.resources.abc import Traversable
from math import fsum
from pathlib import Path
from typing import NamedTuple

from instrumentation.accounting.story import WASTE, MissSums
from instrumentation.accounting.waste.anatomy import Totals
from instrumentation.analyze.file_summaries import (
    AnalysisMethod,
    FileRun,
    ProgressReport,
    SummarizedFile,
    WorkDone,
)
from instrumentation.analyze.result_cache import ResultCache
from instrumentation.analyze.session_summary import (
    PaidCalls,
    SessionSummary,
    Spending,
    ToolWaste,
)
from instrumentation.replay import log_files
from instrumentation.replay.compare import (
    Comparison,
    Contender,
    PlayedSession,
    ReplayConditions,
)
from instrumentation.replay.knowing_policy import KNOWING
from pager.paging.policy_loader import load_policy

SHORTEST = 2
"""Calls below which nothing is ever sent twice."""

_OURS = ("pager", "policies", "instrumentation")
_CODE = (".py", ".json")


class SessionFilter(NamedTuple):
    """Which sessions count: those with at least ``shortest`` calls, and a call since ``since``."""

    shortest: int = SHORTEST
    since: float = 0.0


EVERYTHING = SessionFilter()


class FoundSession(NamedTuple):
    """A session, and the file that it is in."""

    path: Path
    format: str
    session: SessionSummary


class FormatCount(NamedTuple):
    """What there is of one format."""

    name: str
    files: int = 0
    sessions: int = 0
    calls: int = 0


class FilesRead(NamedTuple):
    """What was read: files, their bytes and lines, and what was wrong with them.

    ``bad`` are lines that make no sense, ``broken`` files that could not be read to their end, ``unknown`` those of no
    known format, ``copies`` those with the content of another, and ``older`` those last written before the time from
    which sessions count. ``left_out`` are sessions that are too short or too old; ``lines_left_out`` counts lines that
    were understood and are in no prompt, by the reason, most first.
    """

    files: int
    size: int
    lines: int
    bad: int
    broken: int
    unknown: int
    copies: int
    older: int
    left_out: int
    examples: tuple[str, ...]
    lines_left_out: Mapping[str, int]


@dataclass(frozen=True)
class Analysis:
    """All sessions in the order of their files, and all sums over them."""

    read: FilesRead
    sessions: Sequence[FoundSession]
    policies: Sequence[str] = ()
    work: WorkDone = field(default_factory=WorkDone, compare=False)

    @cached_property
    def totals(self) -> Totals:
        """The tokens of all prompts."""
        return Totals.sum(one.session.totals for one in self.sessions)

    @cached_property
    def paid(self) -> PaidCalls:
        """What all calls cost."""
        return PaidCalls.sum(one.session.paid for one in self.sessions)

    @cached_property
    def waste(self) -> Mapping[str, Spending]:
        """What each cause of waste cost, at the least."""
        columns = list(zip(*(one.session.waste for one in self.sessions), strict=True))
        return {cause: total(column) for cause, column in zip(WASTE, columns, strict=False)}

    @cached_property
    def misses(self) -> MissSums:
        """The calls that missed the provider's cache, by the reason."""
        return MissSums.sum(one.session.misses for one in self.sessions)

    @cached_property
    def tools(self) -> Sequence[ToolWaste]:
        """What was sent in vain for each tool, most of it first."""
        sums: dict[str, ToolWaste] = {}
        for one in (tool for found in self.sessions for tool in found.session.tools):
            so_far = sums.get(one.name, ToolWaste(one.name))
            sums[one.name] = ToolWaste(one.name, so_far.pages + one.pages, so_far.schema + one.schema)
        return sorted(sums.values(), key=lambda tool: (-tool.total, tool.name))

    @cached_property
    def worst(self) -> Sequence[FoundSession]:
        """The sessions, those that wasted most tokens first."""
        return sorted(self.sessions, key=lambda one: (-wasted(one.session.totals), one.session.name, one.path))

    @cached_property
    def formats(self) -> Sequence[FormatCount]:
        """What there is of each format."""
        names = sorted({one.format for one in self.sessions})
        return [_format(name, [one for one in self.sessions if one.format == name]) for name in names]

    @cached_property
    def span(self) -> tuple[float, float]:
        """The times of the first and the last call; 0 where no log has any."""
        timed = [one.session for one in self.sessions if one.session.last]
        return min((one.first for one in timed), default=0.0), max((one.last for one in timed), default=0.0)

    @cached_property
    def comparison(self) -> Comparison:
        """What all sessions would have cost under each policy."""
        played = [_played(one.session) for one in self.sessions]
        return Comparison(played, self.read.left_out)

    @cached_property
    def dollars_saved(self) -> Sequence[float]:
        """The dollars that each policy would have saved, in the order of the comparison's rows."""
        columns = zip(*(one.session.replayed for one in self.sessions), strict=True)
        return [fsum(one.dollars for one in column) for column in columns]


def wasted(totals: Totals) -> int:
    """The tokens that need not have been sent."""
    return sum(totals.client.waste.values())


def total(several: Sequence[Spending]) -> Spending:
    """The sum of what was spent, which does not depend on the order."""
    return Spending(fsum(one.units for one in several), fsum(one.dollars for one in several))


def _format(name: str, found: Sequence[FoundSession]) -> FormatCount:
    return FormatCount(
        name, len({one.path for one in found}), len(found), sum(one.session.totals.calls for one in found)
    )


def _played(session: SessionSummary) -> PlayedSession:
    return PlayedSession(session.name, session.steps, session.before, tuple(one.outcome for one in session.replayed))


# ---------------------------------------------------------------- doing it


def no_progress(done: int, size: int) -> None:
    """Tell nobody how far it is."""


def analyze(
    paths: Sequence[Path],
    how: AnalysisMethod,
    wanted: SessionFilter = EVERYTHING,
    *,
    jobs: int = 1,
    cache: ResultCache | None = None,
    progress: ProgressReport = no_progress,
) -> Analysis:
    """Analyse all logs below these paths; the result is the same for any order and any number of jobs."""
    every = sorted({path.resolve(): path for path in sorted(log_files.files(paths), reverse=True)}.values())
    recent = [path for path in every if not wanted.since or _written(path) >= wanted.since]
    run = FileRun(how, jobs, cache, progress)
    files = run.files(recent)
    sessions = [FoundSession(file.path, file.summary.format, one) for file in files for one in file.summary.sessions]
    counted = [one for one in sessions if one.session.steps >= wanted.shortest and one.session.last >= wanted.since]
    read = _read(files, run.work, len(every) - len(recent), len(sessions) - len(counted))
    return Analysis(read, counted, [one.name for one in how.contenders], run.work)


def _written(path: Path) -> float:
    """When a file was last written; our own log may have been written to beside it."""
    beside = path.with_name(f"{path.name}-wal")
    return max((one.stat().st_mtime for one in (path, beside) if one.exists()), default=0.0)


def _read(files: Sequence[SummarizedFile], work: WorkDone, older: int, left_out: int) -> FilesRead:
    every = [file.summary for file in files]
    examples = [f"{file.path}: {problem}" for file in files for problem in file.summary.examples]
    lines = sum((Counter(one.left_out) for one in every), Counter[str]())
    return FilesRead(
        files=sum(bool(one.format) for one in every),
        size=sum(one.size for one in every),
        lines=sum(one.lines for one in every),
        bad=sum(one.bad for one in every),
        broken=sum(one.is_broken for one in every) + len(work.unread),
        unknown=sum(one.is_unknown for one in every),
        copies=len(work.copies),
        older=older,
        left_out=left_out,
        examples=(*(f"{path}: can't be read" for path in work.unread), *examples)[:5],
        lines_left_out=dict(sorted(lines.items(), key=lambda line: (-line[1], line[0]))),
    )


# ---------------------------------------------------------------- what it depends on


def prepare(contenders: Sequence[Contender], conditions: ReplayConditions) -> AnalysisMethod:
    """The method for these policies; its key covers our own code too."""
    models = conditions.rates()
    known = blake2b(_code(), digest_size=16)
    policies = [(one.name, sorted(one.options.items()), _source(one)) for one in contenders]
    settings = (models.fixed, models.overrides.models, conditions.grace, conditions.tools)
    known.update(repr((policies, settings)).encode())
    return AnalysisMethod(known.hexdigest(), tuple(contenders), conditions)


def _source(contender: Contender) -> bytes:
    """The code of a policy, which may be the user's own."""
    if contender.name == KNOWING:
        return b""
    policy = load_policy(contender.name, contender.options)
    return blake2b(Path(inspect.getfile(type(policy))).read_bytes(), digest_size=16).digest()


def _code() -> bytes:
    """A hash of all our own code and tables."""
    whole = blake2b(digest_size=16)
    for name in _OURS:
        for path, content in _below(resources(name), name):
            whole.update(f"{path} {len(content)}\n".encode() + content)
    return whole.digest()


def _below(folder: Traversable, path: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for one in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if one.is_dir() and one.name != "__pycache__":
            found += _below(one, f"{path}/{one.name}")
        elif one.name.endswith(_CODE) and one.is_file():
            found.append((f"{path}/{one.name}", one.read_bytes()))
    return found
