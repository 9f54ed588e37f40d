"""Finds the parts of a body: its members, and the elements of the member that holds its messages.

An agent's next request is its last one with a little more behind it. A ``ParseCache`` keeps recent bodies with the
places of their parts; a body that begins with all messages of one of them, but for the last few, takes those places
over after one comparison of memory, and only the rest is scanned and hashed. Samples of its bytes find the bodies that
begin alike; a probe, the bytes before the end of a message, finds among them the one to compare with. Neither is
trusted by itself, so that the result never depends on what is kept. Clients that move ``cache_control`` change the last
few messages of what they resend: there are probes for a few messages before the last, too.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

from pager.errors import NotUnderstood
from pager.request_values import Span
from pager.wire.json_spans import Elements, elements, members

SAMPLES = (0, 1 << 13, 1 << 15, 1 << 17, 1 << 19)  # where bodies are sampled, to group those that begin alike
SAMPLE = 64  # bytes
PROBE = 48  # bytes before the end of a message by which a candidate is recognised
STEPS_BACK = (0, 1, 2, 3, 4, 6, 8)  # messages before the last one at which a body may go on differently
ALIKE = 64  # bodies kept that open with the same bytes
WORTH_KEEPING = 4096  # bytes; scanning less costs no more than looking for it
_STUMP = b'{"":[0'
_Group = tuple[str, bytes]  # the member with the messages, and the samples that bodies have in common


class ItemViews(Sequence[memoryview]):
    """The messages of a body as views into it, made when they are asked for."""

    __slots__ = ("_body", "_ends", "_starts")

    def __init__(self, body: bytes, starts: Sequence[int], ends: Sequence[int]) -> None:
        self._body = memoryview(body)
        self._starts = starts
        self._ends = ends

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, at: int) -> memoryview: ...
    @overload
    def __getitem__(self, at: slice) -> "ItemViews": ...
    def __getitem__(self, at: int | slice) -> "memoryview | ItemViews":
        if isinstance(at, slice):
            return ItemViews(self._body.obj, self._starts[at], self._ends[at])  # type: ignore[arg-type]
        return self._body[self._starts[at] : self._ends[at]]

    def __iter__(self) -> Iterator[memoryview]:
        body = self._body
        return (body[start:end] for start, end in zip(self._starts, self._ends, strict=True))


class Parts(NamedTuple):
    """A body's top-level members, and the elements of the one that holds its messages."""

    body: bytes
    members: dict[str, Span]
    starts: Sequence[int]
    ends: Sequence[int]
    separator: bytes | None
    digests: Sequence[bytes]

    @property
    def elements(self) -> Elements:
        """The messages."""
        return Elements(ItemViews(self.body, self.starts, self.ends), self.starts, self.separator, self.digests)


def split(body: bytes, key: str) -> Parts:
    """The parts of a body; raises NotUnderstood. A value of ``key`` that is no array has no elements."""
    found = members(body)
    if key not in found:
        raise NotUnderstood(f"the body has no {key!r}")
    span = found[key]
    if body[span.start : span.start + 1] != b"[":
        return Parts(body, found, (), (), None, ())
    parts = elements(body, span)
    ends = [start + len(item) for start, item in zip(parts.starts, parts.items, strict=True)]
    return Parts(body, found, parts.starts, ends, parts.separator, parts.digests)


class ParseCache:
    """Recent bodies with the places of their parts, the oldest dropped above a number of bytes.

    It is not locked: one thread uses it, and the others parse without it.
    """

    def __init__(self, limit: int = 32 << 20) -> None:
        self._limit = limit
        self._size = 0
        self._kept: OrderedDict[int, tuple[Parts, list[tuple[int, bytes]], _Group]] = OrderedDict()
        self._groups: dict[_Group, dict[tuple[int, bytes], int]] = {}
        self._next = 0

    def split(self, body: bytes, key: str) -> Parts:
        """The same as the function ``split``."""
        if len(body) < WORTH_KEEPING:
            return split(body, key)
        parts = self._continued(body, key) or split(body, key)
        if parts.separator and len(parts.starts) > 1:
            self._keep(parts, key)
        return parts

    def _continued(self, body: bytes, key: str) -> Parts | None:
        samples = _samples(body, len(body))
        group = next((group for sample in samples if (group := self._groups.get((key, sample)))), {})
        for (end, probe), number in sorted(group.items(), reverse=True):
            known = self._kept[number][0]
            if body[end - PROBE : end] == probe and body.startswith(known.body[:end]):
                self._drop(number)
                return _extended(known, known.ends.index(end) + 1, body, key)
        return None

    def _keep(self, parts: Parts, key: str) -> None:
        number = self._next = self._next + 1
        ends = [parts.ends[-1 - back] for back in STEPS_BACK if back < len(parts.ends) - 1]
        group_key = key, next(_samples(parts.body, ends[-1]))
        # What ends with a brace can't go on behind it, as a number could.
        closed = [end for end in ends if end > PROBE and parts.body[end - 1 : end] == b"}"]
        probes = [(end, parts.body[end - PROBE : end]) for end in closed]
        group = self._groups.setdefault(group_key, {})
        group.update(dict.fromkeys(probes, number))
        self._kept[number] = (parts, probes, group_key)
        self._size += len(parts.body)
        if len(group) > ALIKE * len(STEPS_BACK):
            self._drop(min(group.values()))
        while self._size > self._limit:
            self._drop(next(iter(self._kept)))

    def _drop(self, number: int) -> None:
        parts, probes, group_key = self._kept.pop(number)
        self._size -= len(parts.body)
        group = self._groups.get(group_key, {})
        for probe in probes:
            if group.get(probe) == number:
                del group[probe]
        if not group:
            self._groups.pop(group_key, None)


def _samples(body: bytes, end: int) -> Iterator[bytes]:
    """The samples before ``end``: all of them joined, then all but the last, and so on."""
    places = [place for place in SAMPLES if place + SAMPLE <= end] or [0]
    samples = [body[place : place + SAMPLE] for place in places]
    return (b"".join(samples[:count]) for count in range(len(samples), 0, -1))


def _extended(known: Parts, count: int, body: bytes, key: str) -> Parts | None:
    """The parts of a body whose first ``count`` messages are those of a known body; None where that is not simple."""
    end = known.ends[count - 1]
    rest = _STUMP + body[end:]
    try:
        tail = members(rest)
    except NotUnderstood:
        return None
    shift = end - len(_STUMP)
    array = tail.pop("", None)
    before = {name: span for name, span in known.members.items() if span.end <= known.members[key].start}
    if array is None or array.start != 4 or before.keys() & tail.keys() or key in tail:
        return None
    fresh = elements(rest, array)
    if len(fresh.starts) > 1 and fresh.separator != known.separator:
        return None
    moved = {name: Span(span.start + shift, span.end + shift) for name, span in tail.items()}
    starts = [start + shift for start in fresh.starts[1:]]
    ends = [start + len(item) for start, item in zip(starts, fresh.items[1:], strict=True)]
    return Parts(
        body,
        {**before, key: Span(known.members[key].start, array.end + shift), **moved},
        [*known.starts[:count], *starts],
        [*known.ends[:count], *ends],
        known.separator,
        [*known.digests[:count], *fresh.digests[1:]],
    )
