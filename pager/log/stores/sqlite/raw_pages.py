"""Reads rows out of the pages of an SQLite file without SQLite, which refuses a file whose tree is damaged.

The format is documented (https://www.sqlite.org/fileformat2.html): a file is a list of pages of one size; a page of a
tree says in its first byte of which kind it is and lists its cells; a cell holds one record, whose end may lie in a
chain of overflow pages. Every page is looked at by itself, so that a damaged one costs no more than its own rows. What
does not make sense is passed over: all of it may be damaged.
"""

import mmap
import struct
from array import array
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

MAGIC = b"SQLite format 3\0"
HEADER = 100  # bytes before the tree on the first page
TABLE_LEAF, INDEX_LEAF, INDEX_INTERIOR = 0x0D, 0x0A, 0x02
_CELLS_AT = {TABLE_LEAF: 8, INDEX_LEAF: 8, INDEX_INTERIOR: 12}
_WHOLE = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}  # bytes of whole numbers by serial type
_WAL_HEADER, _FRAME_HEADER = 32, 24
_WAL_MAGIC = {0x377F0682: "little", 0x377F0683: "big"}
_UNREADABLE = (IndexError, ValueError, struct.error, OverflowError)

Value = int | float | str | bytes | None


class RawRow(NamedTuple):
    """One record: ``number`` is the row's in a table, None in an index or a table without row numbers."""

    number: int | None
    values: tuple[Value, ...]


class RawPages:
    """The pages of a file, as its write-ahead log left them."""

    def __init__(self, file: bytes | mmap.mmap, wal: bytes, usual: int) -> None:
        self._file, self._wal = file, wal
        sound = file[: len(MAGIC)] == MAGIC
        written = int.from_bytes(file[16:18], "big") if sound else 0
        written = 65536 if written == 1 else written
        self.size = written if written in {2**power for power in range(9, 17)} else usual
        self._usable = self.size - (file[20] if sound and file[20] <= self.size - 480 else 0)
        self._newer = _frames(wal, self.size)
        self.count = max(len(file) // self.size, *self._newer, 0) if self._newer else len(file) // self.size

    def page(self, number: int) -> bytes:
        """A page by its number, which begins at 1; raises IndexError where there is none."""
        at = self._newer.get(number)
        if at is not None:
            return self._wal[at : at + self.size]
        if not 1 <= number <= self.count:
            raise IndexError(number)
        return bytes(self._file[(number - 1) * self.size : number * self.size])

    def rows(self) -> Iterator[RawRow]:
        """All records that can be read, in the order of their pages; those of pages that are free are left out."""
        free = self._free()
        for number in range(1, self.count + 1):
            if number not in free:
                yield from self._rows(number)

    def _rows(self, number: int) -> Iterator[RawRow]:
        page = self.page(number)
        start = HEADER if number == 1 else 0
        kind = page[start] if len(page) > start else 0
        if kind not in _CELLS_AT:
            return
        cells, first = int.from_bytes(page[start + 3 : start + 5], "big"), start + _CELLS_AT[kind]
        for place in range(first, min(first + 2 * cells, len(page) - 1), 2):
            try:
                yield self._row(page, int.from_bytes(page[place : place + 2], "big"), kind)
            except _UNREADABLE:
                continue

    def _row(self, page: bytes, at: int, kind: int) -> RawRow:
        at += 4 if kind == INDEX_INTERIOR else 0
        size, at = _varint(page, at)
        number = None
        if kind == TABLE_LEAF:
            number, at = _varint(page, at)
        return RawRow(number, _record(self._payload(page, at, size, kind)))

    def _payload(self, page: bytes, at: int, size: int, kind: int) -> bytes:
        """The bytes of a record, those in overflow pages included."""
        usable = self._usable
        most = usable - 35 if kind == TABLE_LEAF else (usable - 12) * 64 // 255 - 23
        if size <= most:
            return _slice(page, at, size)
        if size > self.count * self.size:
            raise ValueError(size)
        least = (usable - 12) * 32 // 255 - 23
        here = least + (size - least) % (usable - 4)
        here = here if here <= most else least
        parts, left = [_slice(page, at, here)], size - here
        following = int.from_bytes(_slice(page, at + here, 4), "big")
        while left:
            more = self.page(following)
            parts.append(more[4 : 4 + min(left, usable - 4)])
            left -= len(parts[-1])
            following = int.from_bytes(more[:4], "big")
        return b"".join(parts)

    def _free(self) -> set[int]:
        """The pages that hold nothing any more; none where the list of them can't be read."""
        try:
            first = self.page(1)
            trunk, free = int.from_bytes(first[32:36], "big"), set[int]()
            while first[: len(MAGIC)] == MAGIC and trunk and trunk not in free:
                page = self.page(trunk)
                leaves = min(int.from_bytes(page[4:8], "big"), self.size // 4 - 2)
                free |= {trunk, *struct.unpack_from(f">{leaves}I", page, 8)}
                trunk = int.from_bytes(page[:4], "big")
        except _UNREADABLE:
            return set()
        return free


@contextmanager
def opened(path: Path, usual: int) -> Iterator[RawPages]:
    """The pages of the file at this path, of the ``usual`` size where it does not say another."""
    wal = path.with_name(path.name + "-wal")
    frames = wal.read_bytes() if wal.exists() else b""
    with path.open("rb") as file:
        if not path.stat().st_size:
            yield RawPages(b"", b"", usual)
            return
        with closing(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) as mapped:
            yield RawPages(mapped, frames, usual)


def _frames(wal: bytes, size: int) -> dict[int, int]:
    """Where the newest copy of each page begins in a write-ahead log, of transactions that came to their end."""
    if len(wal) < _WAL_HEADER:
        return {}
    magic, _, of_size, _, salt_1, salt_2, sum_1, sum_2 = struct.unpack_from(">8I", wal)
    if magic not in _WAL_MAGIC or of_size != size:
        return {}
    order = _WAL_MAGIC[magic]
    sums = _summed(wal[:24], (0, 0), order)
    done: dict[int, int] = {}
    going: dict[int, int] = {}
    at = _WAL_HEADER
    while sums == (sum_1, sum_2) and at + _FRAME_HEADER + size <= len(wal):
        number, ends, *salts, sum_1, sum_2 = struct.unpack_from(">6I", wal, at)
        if salts != [salt_1, salt_2]:
            break
        data = at + _FRAME_HEADER
        sums = _summed(wal[data : data + size], _summed(wal[at : at + 8], sums, order), order)
        going[number] = data
        if ends and sums == (sum_1, sum_2):
            done |= going
            going.clear()
        at = data + size
    return done


def _summed(content: bytes, before: tuple[int, int], order: str) -> tuple[int, int]:
    words = array("I", content)
    if order != "little":
        words.byteswap()
    one, two = before
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two


def _slice(page: bytes, at: int, size: int) -> bytes:
    if at + size > len(page):
        raise IndexError(at)
    return page[at : at + size]


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """A number of up to nine bytes, and the place behind it."""
    value = 0
    for place in range(at, at + 8):
        value = value << 7 | content[place] & 0x7F
        if content[place] < 0x80:
            return value, place + 1
    value = value << 8 | content[at + 8]
    return value - (1 << 64) if value >> 63 else value, at + 9


def _record(payload: bytes) -> tuple[Value, ...]:
    end, at = _varint(payload, 0)
    if not 0 < end <= len(payload):
        raise ValueError(end)
    kinds: list[int] = []
    while at < end:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    values: list[Value] = []
    for kind in kinds:
        size = _WHOLE.get(kind, 8 if kind == 7 else (kind - 12) // 2 if kind >= 12 else 0)
        values.append(_value(kind, _slice(payload, at, size)))
        at += size
    return tuple(values)


def _value(kind: int, content: bytes) -> Value:
    if kind >= 12:
        return content.decode() if kind % 2 else content
    if kind == 7:
        return float(struct.unpack(">d", content)[0])
    if kind in (8, 9):
        return kind - 8
    return int.from_bytes(content, "big", signed=True) if kind in _WHOLE else None
