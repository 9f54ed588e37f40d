"""Finds where in a request the hidden legs of earlier calls belong.

The client knows nothing of a hidden leg. It sends what it was shown, and not all clients send that as it was: some put
messages of their own between a text and its calls, split or join messages, drop texts beside calls, or move what they
say of the present to the end. What they must keep is the ids of calls. A leg is found

- behind the item that was last in its call's request, if what follows is what was shown and makes the same calls,
- by the ids of the calls that the client was shown after the leg. They are learned from the first request that follows:
  those that it has and the request before had not, if it has all of that one's.
- behind that item, if what follows is what was shown: its calls may be gone.
- by the item in which the answer was found before, wherever it is now.
- by the text that the leg showed, in the newest answer.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, overload

from pager.paging.pages.page import Contents
from pager.wire.stitching import Expander, Expansion, Leg


@dataclass(slots=True)
class Hidden:
    """The hidden legs of one call: ``before`` is the item that was last in its request.

    ``ids`` are the calls that the client was shown after them, empty where there were none or no request has followed;
    ``answer`` is the item in which they were found last, empty before they were.
    """

    before: bytes
    legs: list[Leg]
    ids: frozenset[str] = frozenset()
    answer: bytes = b""


class Placed(NamedTuple):
    """Hidden legs, and what takes the place of the client's items there."""

    hidden: Hidden
    expansion: Expansion


class RequestView:
    """A request as far as it must be read to find a place in it; every item is read once."""

    def __init__(
        self, norms: Sequence[bytes], raw: Callable[[int], bytes], read: Callable[[bytes], Contents], expand: Expander
    ) -> None:
        self.norms = norms
        self._raw, self._read, self._expand = raw, read, expand
        self._contents: dict[int, Contents] = {}

    def contents(self, at: int) -> Contents:
        """What an item holds."""
        found = self._contents.get(at)
        if found is None:
            found = self._contents[at] = self._read(self._raw(at))
        return found

    def ids(self, at: int) -> tuple[str, ...]:
        """The ids of the calls that an item makes."""
        return tuple(made.call_id for made in self.contents(at).calls if made.call_id)

    def expansion(self, at: int, legs: Sequence[Leg], *, sure: bool = False) -> Expansion | None:
        """The items from here on with the legs put back; None if their place is elsewhere."""
        return self._expand(_Following(self._raw, at, len(self.norms)), legs, sure=sure)


class _Following(Sequence[bytes]):
    """The items of a request from one on, each read when it is looked at."""

    def __init__(self, raw: Callable[[int], bytes], first: int, end: int) -> None:
        self._raw, self._places = raw, range(first, end)

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | Sequence[bytes]:
        found = self._places[at]
        return self._raw(found) if isinstance(found, int) else [self._raw(place) for place in found]


def find(
    hidden: Mapping[int, Hidden], earlier: Sequence[Sequence[str]], first: int, view: RequestView
) -> dict[int, Placed]:
    """The places of hidden legs from item ``first`` on, by item; those whose place is gone are left out.

    ``hidden`` are the legs by their places in the request before, ``earlier`` the ids of the calls in its items.
    """
    places: dict[int, Placed] = {}
    start = first
    for place, kept in sorted(hidden.items()):
        latest = place == len(earlier)  # this is the first request that follows
        here = _by_position(kept, place, start, view)
        if latest:
            new = _new_ids(earlier, first, view)
            kept.ids = new if here is None else new & _calls_of_answer(place, view)
        expected = here if here is not None and kept.ids <= _calls_of_answer(place, view) else None
        found = expected or _by_ids(kept, start, view) or here or _by_answer(kept, start, view)
        if found is None and latest:
            found = _by_text(kept, start, view)
        if found is not None:
            at, expansion = found
            kept.answer = view.norms[at]
            places[at] = Placed(kept, expansion)
            start = at + max(expansion.taken, 1)
    return places


_Spot = tuple[int, Expansion]


def _new_ids(earlier: Sequence[Sequence[str]], first: int, view: RequestView) -> frozenset[str]:
    """The calls of the answer that this request is the first to have; none where it does not go on from the latest."""
    before, unchanged = set(chain.from_iterable(earlier)), set(chain.from_iterable(earlier[:first]))
    there = {call_id for at in range(first, len(view.norms)) for call_id in view.ids(at)}
    return frozenset(there - before) if before <= there | unchanged else frozenset()


def _calls_of_answer(at: int, view: RequestView) -> frozenset[str]:
    """The calls of the answer that begins with this item, up to what somebody else says."""
    ids: list[str] = []
    while at < len(view.norms) and _is_of_answer(view.contents(at)):
        ids += view.ids(at)
        at += 1
    return frozenset(ids)


def _is_of_answer(item: Contents) -> bool:
    return bool(item.said or item.reasoning or item.calls or item.results)


def _by_ids(kept: Hidden, start: int, view: RequestView) -> _Spot | None:
    if not kept.ids:
        return None
    calling = next((at for at in range(start, len(view.norms)) if not kept.ids.isdisjoint(view.ids(at))), None)
    if calling is None:
        return None
    run = range(_run_before(calling, start, view, _is_spoken), calling + 1)
    ahead = range(_run_before(calling, start, view, _is_of_no_call), run[0]) if _show_text(kept.legs) else ()
    return _first((at, view.expansion(at, kept.legs)) for at in (*run, *ahead)) or _first(
        (at, view.expansion(at, kept.legs, sure=True)) for at in run
    )


def _run_before(calling: int, start: int, view: RequestView, holds: Callable[[Contents], bool]) -> int:
    """The first of the items in a row before this one of which this holds."""
    at = calling
    while at > start and holds(view.contents(at - 1)):
        at -= 1
    return at


def _is_spoken(item: Contents) -> bool:
    return bool(item.said or item.reasoning) and _is_of_no_call(item)


def _is_of_no_call(item: Contents) -> bool:
    return not (item.calls or item.results)


def _show_text(legs: Sequence[Leg]) -> bool:
    return any(part.kind == "text" and not part.hidden for leg in legs for part in leg.parts)


def _by_position(kept: Hidden, place: int, start: int, view: RequestView) -> _Spot | None:
    same = start <= place < len(view.norms) and (place == 0 or view.norms[place - 1] == kept.before)
    return _first([(place, view.expansion(place, kept.legs))]) if same else None


def _by_answer(kept: Hidden, start: int, view: RequestView) -> _Spot | None:
    spots = (at for at in range(start, len(view.norms)) if kept.answer and view.norms[at] == kept.answer)
    return _first((at, view.expansion(at, kept.legs)) for at in spots)


def _by_text(kept: Hidden, start: int, view: RequestView) -> _Spot | None:
    """The newest answer that begins with the text of the legs, where they showed any."""
    if not _show_text(kept.legs):
        return None
    spots = (at for at in range(len(view.norms) - 1, start - 1, -1) if view.contents(at).said)
    return _first((at, view.expansion(at, kept.legs)) for at in spots)


def _first(tried: Iterable[tuple[int, Expansion | None]]) -> _Spot | None:
    return next(((at, expansion) for at, expansion in tried if expansion is not None), None)
