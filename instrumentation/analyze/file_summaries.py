"""Studies many files with several processes, and only those whose content was not studied before.

A file is known by the hash of its content. Where its size, its times and its place on the disk are those of last time,
it is not even read for that. What is found does not depend on the order in which files are studied: each is studied by
itself, and only then, in the order of their paths, is it told which answers of a log are copies of an earlier one's.
The few logs that hold copies are studied once more, without them.
"""

import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import NamedTuple

import msgspec

from instrumentation.analyze.cache import Cache
from instrumentation.analyze.study_file import How, Studied, study
from pager.errors import PagerError

Told = Callable[[int, int], None]
"""Is told how many bytes of how many are done."""


class Stamp(msgspec.Struct, frozen=True):
    """By what a file is taken to be unchanged, and the hash that it had."""

    marks: tuple[int, ...]
    digest: str


class File(NamedTuple):
    """A file that was studied."""

    path: Path
    studied: Studied


class Task(NamedTuple):
    """A file that is to be studied: the hash and the bytes of it, and which of its answers are copies."""

    path: Path
    digest: str
    size: int
    copied: frozenset[str] = frozenset()


@dataclass(slots=True)
class Work:
    """What a run did: files that it took from the cache, that it hashed, that it studied; and copies of other files."""

    kept: int = 0
    hashed: int = 0
    studied: int = 0
    copies: list[Path] = field(default_factory=list)
    unread: list[Path] = field(default_factory=list)


class Run:
    """One run over some files."""

    def __init__(self, how: How, jobs: int, cache: Cache | None, told: Told) -> None:
        self.work = Work()
        self._how = how
        self._jobs = jobs
        self._cache = cache
        self._told = told
        self._done = self._size = 0

    def files(self, paths: Sequence[Path]) -> list[File]:
        """What is in each of these files, in their order; files with the same content count once."""
        tasks = self._tasks(paths)
        with ExitStack() as stack:
            several = min(self._jobs, len(tasks))
            pool = stack.enter_context(ProcessPoolExecutor(several, initializer=_quiet)) if several > 1 else None
            found = self._studied(tasks, pool)
            again = list(_with_copies(tasks, found))
            found |= self._studied(again, pool)
        return [File(task.path, found[task.path]) for task in tasks]

    # What is there

    def _tasks(self, paths: Sequence[Path]) -> list[Task]:
        self._size = sum(map(_size, paths))
        tasks: dict[str, Task] = {}
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

    def _task(self, path: Path) -> Task | None:
        """The file with its hash; None if it can't be read."""
        try:
            marks = tuple(mark for one in _parts(path) for mark in _marks(one))
            known = self._cache.get(f"file {path.absolute()}", Stamp) if self._cache else None
            if known is None or known.marks != marks:
                known = Stamp(marks, _digest(path))
                self.work.hashed += 1
                if self._cache:
                    self._cache.put(f"file {path.absolute()}", known)
            return Task(path, known.digest, _size(path))
        except OSError:
            return None

    # What is in it

    def _studied(self, tasks: Sequence[Task], pool: ProcessPoolExecutor | None) -> dict[Path, Studied]:
        found: dict[Path, Studied] = {}
        missing = []
        for task in tasks:
            kept = self._cache.get(self._name(task), Studied) if self._cache else None
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

    def _name(self, task: Task) -> str:
        """What it is kept under: how it is studied, the content, and the name, which may be that of the session."""
        copied = blake2b("\n".join(sorted(task.copied)).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        return f"study {self._how.key} {task.digest} {copied} {task.path.name}"

    def _step(self, size: int) -> None:
        self._done = min(self._size, self._done + size)
        self._told(self._done, self._size)


def _each(tasks: Sequence[Task], how: How, pool: ProcessPoolExecutor | None) -> Iterator[tuple[Task, Studied]]:
    """Each file with what is in it, as they are done: large ones first, so that no process is left with one at last."""
    ordered = sorted(tasks, key=lambda task: (-task.size, task.path))
    if pool is None:
        yield from ((task, study(task.path, how, task.copied)) for task in ordered)
        return
    waiting: dict[Future[Studied], Task] = {pool.submit(study, task.path, how, task.copied): task for task in ordered}
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


def _with_copies(tasks: Iterable[Task], found: dict[Path, Studied]) -> Iterator[Task]:
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
