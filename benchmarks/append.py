"""Measures a durable append against a plain append and flush of as many bytes, interleaved on the same disk.

    python -m benchmarks.append [--rounds 60] [--folder DIR]

Each round times some appends of one kind, then as many of the other, so that a slow moment of the disk falls on both.
"""

import argparse
import os
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from pager.log.events import CallReceived, Cut, encode
from pager.log.store import Batch, Place, Store
from pager.log.stores import open_store, schemes

_PER_ROUND = 10
_PRODUCERS = 16
_WORDS = [f"word{number:03d}" for number in range(400)]


class AppendSample(NamedTuple):
    """A typical batch, and the bytes that a plain file would hold of it."""

    batch: Batch
    plain: bytes


class AppendFigures(NamedTuple):
    """Medians in seconds, and batches a second with many producers at once."""

    durable: float
    plain: float
    ratio: float
    throughput: float
    producers: int


def sample(number: int, seed: random.Random, *, marked: bool = False) -> AppendSample:
    content = " ".join(seed.choices(_WORDS, k=430)).encode()[:3072]
    digest = sha256(content).digest()
    event = CallReceived(
        branch=1,
        call=number,
        attempt=1,
        dialect="chat",
        path="/v1/chat/completions",
        model="some-model-2026-01-01",
        stream=True,
        body=digest.hex(),
        size=200_000 + number,
        skeleton=digest.hex(),
        cuts=[Cut(12, ""), Cut(40, digest.hex())],
        keep=number,
        messages=[digest.hex()],
        separator=",",
        parent_branch=1,
        parent_call=number - 1,
        lineage=digest.hex(),
    )
    place = Place("session-of-the-benchmark", 1, number)
    marks = {digest: place} if marked else {}
    batch = Batch(place.session, 1.0 + number, (event,), {digest: content}, "local", marks)
    return AppendSample(batch, encode(event) + content)


def measure(folder: Path, store_name: str = "sqlite", *, rounds: int = 60, marked: bool = False) -> AppendFigures:
    """Medians over the rounds; the ratio is taken inside each round, where both saw the same disk."""
    seed = random.Random(7)
    durable: list[float] = []
    plain: list[float] = []
    with closing(open_store(f"{store_name}:{folder / 'log'}")) as store, _plain_file(folder / "plain") as handle:
        for turn in range(rounds):
            samples = [sample(turn * _PER_ROUND + number, seed, marked=marked) for number in range(_PER_ROUND)]
            durable.append(statistics.median(_appended(store, one) for one in samples))
            plain.append(statistics.median(_written(handle, one) for one in samples))
        throughput = _throughput(store, producers=_PRODUCERS, each=200)
    ratio = statistics.median(ours / theirs for ours, theirs in zip(durable, plain, strict=True))
    return AppendFigures(statistics.median(durable), statistics.median(plain), ratio, throughput, _PRODUCERS)


@contextmanager
def _plain_file(path: Path) -> Iterator[int]:
    handle = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    try:
        yield handle
    finally:
        os.close(handle)


def _appended(store: Store, one: AppendSample) -> float:
    start = time.perf_counter()
    store.append(one.batch).result()
    return time.perf_counter() - start


def _written(handle: int, one: AppendSample) -> float:
    start = time.perf_counter()
    os.write(handle, one.plain)
    os.fdatasync(handle)
    return time.perf_counter() - start


def _throughput(store: Store, *, producers: int, each: int) -> float:
    loads = [
        [sample(10_000 * (who + 1) + n, random.Random(who * each + n)) for n in range(each)] for who in range(producers)
    ]

    def produce(load: list[AppendSample]) -> None:
        for one in load:
            store.append(one.batch).result()

    threads = [threading.Thread(target=produce, args=(load,)) for load in loads]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return producers * each / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--store", choices=schemes(), default="sqlite")
    parser.add_argument("--folder", type=Path, help="a folder on the disk to measure (default: a temporary one)")
    options = parser.parse_args()
    for title, marked in (("one event, one blob of 3 KB", False), ("the same with a mark", True)):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            _show(title, measure(Path(folder), options.store, rounds=options.rounds, marked=marked))


def _show(title: str, figures: AppendFigures) -> None:
    print(f"{title}:")
    print(f"  durable append        {figures.durable * 1e6:8.0f} us (median)")
    print(f"  append + fdatasync    {figures.plain * 1e6:8.0f} us (median)")
    print(f"  ratio                 {figures.ratio:8.2f}")
    print(f"  {figures.producers} producers          {figures.throughput:8.0f} batches/s, each durable")


if __name__ == "__main__":
    main()
