"""Makes the bytes that go upstream: the client's own body with a few spans replaced.

Everything that is changed is an edit of a span of the client's body: a message with a stub in it, hidden legs put back,
the tool that was added, a cache mark. What no edit touches keeps its bytes. The edits of a branch stay the same from
call to call until a repack, so the prompt grows at its end only.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256

from pager.paging.page_in import definition
from pager.paging.pages.page_table import PageTable, Slot, raw_of
from pager.pricing.mark_cache import marks_in
from pager.request_values import Request, Span
from pager.tools.decide_forms import Toolset
from pager.wire.byte_edits import apply_edits
from pager.wire.common import member_edit
from pager.wire.dialect import Dialect
from pager.wire.page_spans import stubbed
from pager.wire.stitching import ToolSlot

WORTH_MARKING = 4_096  # bytes; providers cache nothing that is shorter
Edit = tuple[Span, bytes]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request as it goes upstream: the client's, with edits; ``more`` items follow those of the client.

    ``tools`` says in which forms the client's tools are sent, where that was decided of those that it offers. Where
    items follow, the last of them gets a cache mark by ``mark_leg``, and ``leg_edits`` are made in place of ``edits``
    if all marks that a request may have are in use. ``choice`` is the edit that forbids calls, in the very last leg of
    an answer.
    """

    request: Request
    edits: tuple[Edit, ...] = ()
    more: tuple[bytes, ...] = ()
    tools: Toolset | None = None
    mark_leg: Callable[[bytes], bytes | None] | None = None
    leg_edits: tuple[Edit, ...] | None = None
    choice: Edit | None = None

    @property
    def changed(self) -> bool:
        """Whether anything differs from what the client sent."""
        return bool(self.edits or self.more)

    @property
    def size(self) -> int:
        """How many bytes go out."""
        between, (edits, more) = len(self.request.separator or b","), self._written()
        added = sum(len(item) + between for item in more)
        return len(self.request.body) + added + sum(len(new) - (span.end - span.start) for span, new in edits)

    def body(self) -> bytes:
        """The bytes that go out."""
        request, (edits, more) = self.request, self._written()
        if not more:
            return apply_edits(request.body, edits)
        end = request.starts[-1] + len(request.items[-1])
        between = request.separator or b","
        added = b"".join(between + item for item in more)
        # An edit of the last item ends where what is added begins; added must come behind it.
        last = [edit for edit in edits if edit[0].end == end]
        others = [edit for edit in edits if edit[0].end != end]
        span, new = last[0] if last else (Span(end, end), b"")
        return apply_edits(request.body, [*others, (span, new + added)])

    def _written(self) -> tuple[tuple[Edit, ...], tuple[bytes, ...]]:
        """The edits, and the items that follow, with the mark that a hidden leg gets."""
        choice = () if self.choice is None else (self.choice,)
        if not self.more or self.mark_leg is None:
            return (*self.edits, *choice), self.more
        last = self.mark_leg(self.more[-1]) or self.more[-1]
        edits = self.edits if self.leg_edits is None else self.leg_edits
        return (*edits, *choice), (*self.more[:-1], last)

    def digest(self, client: str) -> str:
        """A hash over the digest of the client's body and all edits: the same only for the same bytes."""
        hashed = sha256(client.encode())
        for span, new in sorted(self.edits):
            hashed.update(f"|{span.start}-{span.end}:{len(new)}|".encode())
            hashed.update(new)
        return hashed.hexdigest()

    def followed_by(self, items: Sequence[bytes]) -> "Outgoing":
        """The same request with these items behind all others."""
        return replace(self, more=(*self.more, *items))

    def without_calls(self, dialect: Dialect) -> "Outgoing":
        """The same request, in answer to which nothing can be called."""
        return replace(self, choice=dialect.forbid_calls(self.request))


def render(dialect: Dialect, request: Request, table: PageTable, tool_slot: ToolSlot | None) -> Outgoing:
    """The request of the table's latest call as it goes out now; without a tool slot the tool is not added."""
    edits, short = _edits(dialect, request, table, tool_slot, table.anchors)
    if not table.mark_legs:
        return Outgoing(request, edits, tools=short)
    mark_leg = partial(dialect.mark, lifetime=table.anchor_lifetime(len(table.slots) + 1))
    fewer = table.anchors[: table.free_marks - 1] if len(table.anchors) >= table.free_marks else None
    leg_edits = None if fewer is None else _edits(dialect, request, table, tool_slot, fewer)[0]
    return Outgoing(request, edits, tools=short, mark_leg=mark_leg, leg_edits=leg_edits)


def _edits(
    dialect: Dialect, request: Request, table: PageTable, tool_slot: ToolSlot | None, anchors: Sequence[int]
) -> tuple[tuple[Edit, ...], Toolset | None]:
    """All edits of the client's body, and in which forms its tools are sent."""
    head, last = dialect.mark_head(request, table.lifetime) if table.ends else None, len(table.slots)
    prefixes = {*anchors, last} if head is not None else {*anchors}
    marked = {count - 1: table.anchor_lifetime(count) for count in prefixes if 0 < count <= last}
    edits = [*_slots(dialect, request, table, marked)]
    short = None
    if tool_slot is not None and table.tool:
        edits += _tool(request, tool_slot, definition(dialect.name, table.tool))
        listed = dialect.offers(request) if table.tools is not None and table.tools.shortened else None
        if table.tools is not None and listed is not None and listed.offers.digest == table.tools.digest:
            short = table.tools
            edits += short.edits(listed)
    if head is not None and not any(_overlap(head[0], span) for span, _ in edits):
        edits.append(head)
    if table.lifetime:
        edits += dialect.lengthen_head(request) or ()
    return (*edits, *_members(request, table)), short


def in_full(dialect: Dialect, request: Request, table: PageTable) -> Outgoing:
    """The client's request in full, but for cache marks."""
    if table.ends:
        return marked(dialect, request, table.lifetime)
    return lengthened(dialect, request) if table.lifetime else Outgoing(request, tuple(_members(request, table)))


def _members(request: Request, table: PageTable) -> list[Edit]:
    """The edits that add members of ours to the body, where the client does not set them itself."""
    return [
        member_edit(request, name, value.encode())
        for name, value in table.members.items()
        if name not in request.members
    ]


def marked(dialect: Dialect, request: Request, lifetime: float = 0.0) -> Outgoing:
    """The client's request in full, with a cache mark on its head and its last item."""
    head, last = dialect.mark_head(request, lifetime), len(request.items) - 1
    tail = dialect.mark(bytes(request.items[last]), lifetime) if head is not None and last >= 0 else None
    if head is None or tail is None:
        return Outgoing(request)
    return Outgoing(request, (head, (_span(request, last, 1), tail)))


def lengthened(dialect: Dialect, request: Request) -> Outgoing:
    """The client's request in full, with all its cache marks asking for an hour; as it came where they can't."""
    head = dialect.lengthen_head(request)
    written = {at: dialect.lengthen(bytes(item)) for at, item in enumerate(request.items) if marks_in(bytes(item))}
    items = [(_span(request, at, 1), new) for at, new in written.items() if new is not None]
    return Outgoing(request, (*head, *items)) if head is not None and len(items) == len(written) else Outgoing(request)


def can_lengthen(dialect: Dialect, request: Request, table: PageTable) -> bool:
    """Whether all cache marks of the table's latest request can ask for an hour: the client names no lifetime."""
    if dialect.lengthen_head(request) is None:
        return False
    raw = partial(raw_of, request)
    return all(dialect.lengthen(with_stubs(dialect, table.slots[at], raw)) is not None for at in sorted(table.marked))


def lacks_marks(dialect: Dialect, request: Request, table: PageTable) -> bool:
    """Whether we mark the head and the end of a request: the client marks nothing, and it is worth caching."""
    if table.client_marks or len(request.body) < WORTH_MARKING:
        return False
    return dialect.mark_head(request) is not None


def _slots(dialect: Dialect, request: Request, table: PageTable, marked: Mapping[int, float]) -> Iterator[Edit]:
    """The edits that stubs, hidden legs and cache marks make; ``marked`` has the lifetime of each slot's mark."""
    written: set[int] = set()
    longer = table.marked if table.lifetime else set()

    def sent(at: int) -> bytes:
        item = with_stubs(dialect, table.slots[at], partial(raw_of, request))
        if at in longer:
            item = dialect.lengthen(item) or item
        return (dialect.mark(item, marked[at]) or item) if at in marked else item

    between = request.separator or b","
    for one in table.expanded:
        slots = range(one.slot, one.slot + one.slots)
        written.update(slots)
        new = between.join(map(sent, slots)) + (b"" if one.taken else between)
        yield _span(request, one.item, one.taken), new
    for at in sorted((table.changed | marked.keys() | longer) - written):
        slot = table.slots[at]
        start = request.starts[slot.item]
        yield Span(start, start + slot.size), sent(at)


def with_stubs(dialect: Dialect, slot: Slot, raw: Callable[[Slot], bytes]) -> bytes:
    """An item with its stubs, written once and kept; one without any is as ``raw`` gives it."""
    if slot.sent is None:
        item, stubs = raw(slot), {page.key: page.stub for page in slot.pages if page.stub}
        if not stubs:
            return item
        slot.sent = stubbed(item, dialect.page_spans(item), stubs)
    return slot.sent


def _span(request: Request, item: int, count: int) -> Span:
    start = request.starts[item]
    if not count:
        return Span(start, start)
    last = item + count - 1
    return Span(start, request.starts[last] + len(request.items[last]))


def _tool(request: Request, tool_slot: ToolSlot, entry: bytes) -> list[Edit]:
    """The edit that adds the tool; tools are in no item that holds a page."""
    shift = request.starts[tool_slot.item] if tool_slot.item is not None else 0
    at = shift + tool_slot.at
    return [(Span(at, at), tool_slot.before + entry + tool_slot.after)]


def _overlap(left: Span, right: Span) -> bool:
    """Whether two edits can't both be made; at one and the same place they would be made in no certain order."""
    return left == right or (left.start < right.end and right.start < left.end)
