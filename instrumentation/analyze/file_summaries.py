"""Summarizes the sessions of many files, with several processes, and only files whose content is new.

A file is known by the hash of its content. Where its size, times and place on the disk are those of the last run, it is
not even hashed. The result does not depend on the order of the work: each file is summarized by itself; then, in the
order of their paths, answers are found that are copies of an earlier file's, and the few files that hold copies are
summarized again without them.
"""

import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import NamedTuple

import msgspec

from instrumentation.accounting import cache_lifetimes
from instrumentation.analyze.result_cache import ResultCache
from instrumentation.analyze.session_summary import SessionSummary, summed_up
from instrumentation.replay import log_files
from instrumentation.replay.compare import Contender, ReplayConditions
from instrumentation.replay.log_files import Imported, Problems
from instrumentation.replay.prepared_recording import Prepared
from pager.errors import PagerError
from pager.paging.credit import first_credit
from pager.pricing.rates import Models
from pager.wire.dialects import load as load_dialect

ProgressReport = Callable[[int, int], None]
"""Takes the bytes that are done, and of how many."""


EXAMPLES = 3
"""Problems of a file that are described; all are counted."""


@dataclass(frozen=True, slots=True)
class AnalysisMethod:
    """What sessions are played under; ``key`` is a hash of all that the result depends on beside the logs."""

    key: str
    contenders: tuple[Contender, ...] = field(default=(), compare=False)
    conditions: ReplayConditions = field(default_factory=ReplayConditions, compare=False)


class FileSummary(msgspec.Struct, frozen=True):
    """What is in a file: its format, empty if it is not known, and its sessions; ``size`` are the bytes unpacked.

    ``answers`` are the ids of those of its answers that another log may hold a copy of. ``left_out`` counts lines that
    are in no prompt, by the reason.
    """

    format: str = ""
    sessions: tuple[SessionSummary, ...] = ()
    lines: int = 0
    size: int = 0
    bad: int = 0
    is_broken: bool = False
    is_unknown: bool = False
    examples: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    left_out: dict[str, int] = {}


class FileStamp(msgspec.Struct, frozen=True):
    """By what a file is taken to be unchanged, and the hash that it had."""

    marks: tuple[int, ...]
    digest: str


class SummarizedFile(NamedTuple):
    """A file and its summary."""

    path: Path
    summary: FileSummary


class FileTask(NamedTuple):
    """A file to be summarized: the hash and the bytes of its content, and the ids of its answers that are copies."""

    path: Path
    digest: str
    size: int
    copied: frozenset[str] = frozenset()


@dataclass(slots=True)
class WorkDone:
    """What a run did: counts of files taken from the cache, hashed and summarized; copies and unreadable files."""

    kept: int = 0
    hashed: int = 0
    studied: int = 0
    copies: list[Path] = field(default_factory=list)
    unread: list[Path] = field(default_factory=list)


class FileRun:
    """One run over some files."""

    def __init__(self, how: AnalysisMethod, jobs: int, cache: ResultCache | None, progress: ProgressReport) -> None:
        self.work = WorkDone()
        self._how = how
        self._jobs = jobs
        self._cache = cache
        self._progress = progress
        self._done = self._size = 0

    def files(self, paths: Sequence[Path]) -> list[SummarizedFile]:
        """What is in each of these files, in their order; files with the same content count once."""
        tasks = self._tasks(paths)
        with ExitStack() as stack:
            several = min(self._jobs, len(tasks))
            pool = stack.enter_context(ProcessPoolExecutor(several, initializer=_quiet)) if several > 1 else None
            found = self._studied(tasks, pool)
            again = list(_with_copies(tasks, found))
            found |= self._studied(again, pool)
        return [SummarizedFile(task.path, found[task.path]) for task in tasks]

    # What is there

    def _tasks(self, paths: Sequence[Path]) -> list[FileTask]:
        self._size = sum(map(_size, paths))
        tasks: dict[str, FileTask] = {}
        for path in paths:
            task = self._task(path)
            if task is None:
                self.work.unread.append(path)
            elif task.size and task.digest in tasks:
                self.work.copies.append(path)
                self._step(task.size)
            else:
                tasks[task.digest if task.size else str(path)] = task
        return list(tasks.values())

    def _task(self, path: Path) -> FileTask | None:
        """The file with its hash; None if it can't be read."""
        try:
            marks = tuple(mark for one in _parts(path) for mark in _marks(one))
            known = self._cache.get(f"file {path.absolute()}", FileStamp) if self._cache else None
            if known is None or known.marks != marks:
                known = FileStamp(marks, _digest(path))
                self.work.hashed += 1
                if self._cache:
                    self._cache.put(f"file {path.absolute()}", known)
            return FileTask(path, known.digest, _size(path))
        except OSError:
            return None

    # What is in it

    def _studied(self, tasks: Sequence[FileTask], pool: ProcessPoolExecutor | None) -> dict[Path, FileSummary]:
        found: dict[Path, FileSummary] = {}
        missing = []
        for task in tasks:
            kept = self._cache.get(self._name(task), FileSummary) if self._cache else None
            if kept is None:
                missing.append(task)
            else:
                found[task.path] = kept
                self.work.kept += 1
                self._step(task.size)
        for task, studied in _each(missing, self._how, pool):
            found[task.path] = studied
            self.work.studied += 1
            if self._cache:
                self._cache.put(self._name(task), studied)
                self._task(task.path)  # to read a database may have touched it
            self._step(task.size)
        return found

    def _name(self, task: FileTask) -> str:
        """The name in the cache: the method, the content, and the file name, which may be the name of the session."""
        copied = blake2b("\n".join(sorted(task.copied)).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        return f"study {self._how.key} {task.digest} {copied} {task.path.name}"

    def _step(self, size: int) -> None:
        self._done = min(self._size, self._done + size)
        self._progress(self._done, self._size)


def _each(
    tasks: Sequence[FileTask], how: AnalysisMethod, pool: ProcessPoolExecutor | None
) -> Iterator[tuple[FileTask, FileSummary]]:
    """Each file with what is in it, as they are done: large ones first, so that no process is left with one at last."""
    ordered = sorted(tasks, key=lambda task: (-task.size, task.path))
    if pool is None:
        yield from ((task, summarize_file(task.path, how, task.copied)) for task in ordered)
        return
    waiting: dict[Future[FileSummary], FileTask] = {
        pool.submit(summarize_file, task.path, how, task.copied): task for task in ordered
    }
    try:
        for future in as_completed(waiting):
            yield waiting.pop(future), future.result()
    except BrokenProcessPool as error:
        raise PagerError(f"a process has died, maybe for want of memory; try --jobs 1: {error}") from error
    finally:
        for future in waiting:
            future.cancel()


def _quiet() -> None:
    """Let a process finish its file when the user interrupts: the one that started it stops."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _with_copies(tasks: Iterable[FileTask], found: dict[Path, FileSummary]) -> Iterator[FileTask]:
    """Those files that hold copies of answers of an earlier one."""
    answers: set[str] = set()
    for task in tasks:
        own = found[task.path].answers
        copied = answers.intersection(own)
        if copied:
            yield task._replace(copied=frozenset(copied))
        answers.update(own)


# ---------------------------------------------------------------- files


def _parts(path: Path) -> list[Path]:
    """The files that hold what is in one: a database may have written to another beside it."""
    beside = path.with_name(f"{path.name}-wal")
    return [path, beside] if _size(beside) else [path]


def _marks(path: Path) -> Iterator[int]:
    about = path.stat()
    yield from (about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino, about.st_dev)


def _digest(path: Path) -> str:
    whole = blake2b(digest_size=32)
    for one in _parts(path):
        with one.open("rb") as file:
            whole.update(file_digest(file, "sha256").digest())
    return whole.hexdigest()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


# ---------------------------------------------------------------- one file


def summarize_file(path: Path, how: AnalysisMethod, copied: frozenset[str] = frozenset()) -> FileSummary:
    """Read a file and sum its sessions up, one by one; answers that were ``copied`` into it are no calls of its own."""
    problems = Problems(answers=set(copied))
    form, sessions = "", []
    for found in log_files.read(path, problems):
        form = found.format
        session = _session(found, how, problems)
        if session is not None:
            sessions.append(session)
    return FileSummary(
        format=form or log_files.format_of(path),
        sessions=tuple(sessions),
        lines=problems.lines,
        size=problems.size,
        bad=problems.bad,
        is_broken=bool(problems.broken),
        is_unknown=bool(problems.unknown),
        examples=tuple(problem.removeprefix(f"{path}: ") for problem in problems.examples[:EXAMPLES]),
        answers=tuple(sorted(problems.answers - copied)),
        left_out=dict(problems.left_out),
    )


def _session(found: Imported, how: AnalysisMethod, problems: Problems) -> SessionSummary | None:
    """A session summed up; None, and a problem, if it can't be played."""
    recording, conditions = cache_lifetimes.shown(found.recording), how.conditions
    try:
        dialect = load_dialect(recording.dialect)
        prepared = Prepared(recording, dialect, conditions.grace, conditions.tools, conditions.cache)
        return summed_up(prepared, how.contenders, _models(how), first_credit(conditions.credit))
    except (PagerError, RecursionError) as error:
        problems.file(found.path, f"session {recording.name} can't be played: {error}")
        return None


@lru_cache(maxsize=2)
def _models(how: AnalysisMethod) -> Models:
    """The table of models, which takes longer to make than most sessions take to play."""
    return how.conditions.rates()
