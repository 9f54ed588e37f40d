"""The page table of a branch: what its prompt is made of, and what is known of every page in it.

The table is a fold of the log. A call advances it (``advance``), what is logged of a call changes it (``apply``): a
decision evicts pages, a hidden leg stays in the prompt and counts as a use of the pages it brought. The same events in
the same order give the same table, live or rebuilt; that is why nothing here looks at a clock, or at what was not
logged before.

The prompt is a list of slots: the client's items in their order, with hidden legs put back where they happened. Only
what is new in a call is read: slots that a call repeats byte for byte stay as they are.

A page has a name in its branch: its handle, with a number behind it where the same content is in the prompt again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Literal, NamedTuple

from pager.log.bypass_reasons import WENT_IN_FULL, BypassReason
from pager.log.events import (
    Bypassed,
    Event,
    Evicted,
    LegFinished,
    Marked,
    Repacked,
    ToolsDecided,
    Warmed,
    WarmingEnd,
    WarmingStopped,
)
from pager.paging.page_in import Brought, brought_by
from pager.paging.pages.duplicates import duplicates, page_name
from pager.paging.pages.hidden_legs import (
    Hidden,
    Placed,
    RequestView,
    find,
)
from pager.paging.pages.page import (
    BACK,
    Account,
    Contents,
    Found,
    Items,
    Page,
    found_again,
    tokens_of,
)
from pager.paging.pages.page_arrays import Mirror
from pager.paging.pages.staleness import Deed, Supersession, deed_of
from pager.paging.pages.stub import longer, main_argument
from pager.paging.warmth.returns import SHORTEST, Pause, WaitsFor
from pager.pricing.mark_cache import (
    FIVE_MINUTES,
    HOUR,
    MOST_MARKS,
    MarkCache,
    marks_in,
    without_marks,
)
from pager.pricing.prices import TOOL
from pager.pricing.provider_cache import Evidence
from pager.pricing.token_scale import Yardstick
from pager.request_values import Request, Usage
from pager.text.references import Index
from pager.tools.decide_forms import ToolAsSent, Toolset
from pager.wire.stitching import Expander, Leg


@dataclass(slots=True)
class EvictedPages:
    """The evicted pages of a branch by their handles: what comes back has the history of its content."""

    pages: dict[str, Page] = field(default_factory=dict)  # the one that was evicted last, perhaps still here as a stub
    back: dict[str, list[str]] = field(default_factory=dict)  # names of what was brought back, whole or in part

    def keep(self, page: Page) -> None:
        """A page is evicted."""
        self.pages[page.handle] = page

    def fault(self, handles: Iterable[str], known: Mapping[str, Page], call: int) -> None:
        """Count a fault for pages that left the prompt with the client's history; ``known`` are those in it."""
        for page in map(self.pages.get, sorted(handles)):
            if page is not None and known.get(page.name) is not page:
                page.fault(call)

    def hand_on(self, page: Page, came: Brought | None) -> None:
        """Give a new page the history of its content, and say what it was brought from, if it was."""
        if came is not None:
            origins = [self.pages[handle] for handle in came.handles if handle in self.pages]
            page.origins, page.whole = came.handles, came.content is not None
            page.makers = tuple(dict.fromkeys(call_id for one in origins for call_id in one.makers or (one.call_id,)))
            page.tool = origins[0].tool if origins else page.tool
            for handle in came.handles:
                names = self.back.setdefault(handle, [])
                names += [] if page.name in names else [page.name]
        if page.handle in self.pages:
            page.inherit(self.pages[page.handle])

    def copy(self, known: Mapping[str, Page], copies: Mapping[str, Page]) -> "EvictedPages":
        """The same for a branch that forks off, which has ``copies`` of the pages that are ``known`` here."""
        return EvictedPages(
            {
                handle: copies[page.name] if known.get(page.name) is page else replace(page)
                for handle, page in self.pages.items()
            },
            {handle: list(names) for handle, names in self.back.items()},
        )


LONGER = 24
"""Digits of the handle of a page whose usual handle is that of another content."""

NEAR_THE_END = 3
"""Items at the end of a prompt in which a mark is taken to move on with it from call to call."""

MESSAGES_A_LEG = 2
"""Items that a hidden leg adds to a prompt with cache marks: what the model asked, and our answer."""

Reader = Callable[[bytes], Contents]


class Source(NamedTuple):
    """Where the content of a page is kept: the digest of an item, and the page's key in it."""

    message: bytes
    key: str


@dataclass(slots=True)
class Slot:
    """One item of the prompt: the client's number ``item``, or, at -1, bytes of our own.

    ``norm`` is the hash of what it says, cache marks aside; ``marks`` are the lifetimes that the client's own marks in
    it ask for. ``positions`` are those that a provider counts for a cache mark; ``markable``: whether it can
    carry one.
    """

    digest: bytes
    item: int
    raw: bytes | None = None
    size: int = 0
    pages: list[Page] = field(default_factory=list)
    reasoning: bool = False
    sent: bytes | None = None
    norm: bytes = b""
    marks: tuple[float, ...] = ()
    positions: int = 1
    markable: bool = True


def raw_of(request: Request, slot: Slot) -> bytes:
    """The bytes of a slot in the prompt of this request."""
    return slot.raw if slot.raw is not None else bytes(request.items[slot.item])


class Expanded(NamedTuple):
    """Hidden legs in the prompt: ``taken`` of the client's items from ``item`` on are ``slots`` slots from ``slot``.

    ``longer`` are the bytes that they add to the prompt.
    """

    item: int
    taken: int
    slot: int
    slots: int
    longer: int = 0


def _by_what_was_read() -> Supersession:
    """What is dead: of files that were edited since, half are quoted again; of what was read or written anew, few."""
    return Supersession(by_edits=False)


class Refresh(NamedTuple):
    """A prompt sent once more, only to keep it cached: when, what a call in time saves, and for how many seconds."""

    at: float
    stake: float
    lifetime: float

    def rescues(self, before: float, now: float) -> float:
        """What it saved a call, where the call before it was answered to this long ago; 0 where it was not needed."""
        return self.stake if now - before > self.lifetime >= now - self.at else 0.0


@dataclass(slots=True)
class PageTable:
    """The pages of one branch as of its latest call, in the order of the prompt; ``changed`` are slots with stubs.

    ``idle`` are the seconds since the call before, ``tool`` is the name of the tool that was added for paging, if it
    was; ``stopped`` says why there is no paging in this branch any more, if there is not. ``shown`` are the pages that
    the model knows by a stub, ``facts`` what happened since the call before, ``gaps`` the seconds between calls.
    ``prompt`` are the tokens of the latest call's prompt as it is paged, ``before`` those of the one before;
    ``reported`` are the provider's tokens of a prompt and its bytes, of the latest prompt for which both are known;
    ``yardstick`` says what our own tokens are in the provider's, ``evidence`` what its reports have shown of its cache.
    ``tools`` is what was last decided of the client's tools, if anything was, and ``schemas`` are all tools that were
    ever sent short, by their handles.

    ``marked`` are the slots in which the client has cache marks, ``head_marks`` and ``auto_mark`` its marks elsewhere.
    ``ends`` says that we mark the prompt's head and end, as the client marks nothing; ``anchors`` are prefixes, by
    their number of slots, that marks of ours keep alive; ``mark_legs``: hidden legs end at a mark. ``lifetime`` are the
    seconds that all marks ask for where the client names none and we chose so, else 0; ``hour_denied``: an hour was
    asked for and not granted. ``held`` is what a provider that caches at marks has of the prompts before the latest.
    """

    dialect: str
    read: Reader
    expand: Expander
    call: int = 0
    attempt: int = 0
    at: float = 0.0
    refresh: Refresh | None = None  # the latest of its latest prompt, if there was one
    warming_ended: str = ""  # why the branch is never kept warm any more, or empty
    idle: float = 0.0
    tool: str = ""
    tools: Toolset | None = None
    stopped: str = ""
    digests: list[bytes] = field(default_factory=list)
    norms: list[bytes] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)
    pages: list[Page] = field(default_factory=list)
    changed: set[int] = field(default_factory=set)
    expanded: list[Expanded] = field(default_factory=list)
    hidden: dict[int, Hidden] = field(default_factory=dict)
    lost_legs: int = 0
    facts: list[str] = field(default_factory=list)
    account: Account = field(default_factory=Account)
    gaps: list[float] = field(default_factory=list)
    pauses: list[Pause] = field(default_factory=list)  # those of some length, whether or not it was kept warm in them
    prompt: int = 0
    before: int = 0
    around: str = ""
    model: str = ""  # of the latest call
    windows: dict[str, int] = field(default_factory=dict)  # by model, as the provider named them in errors
    reported: tuple[int, int] | None = None
    last_end: int = -1
    marked: set[int] = field(default_factory=set)
    head_marks: tuple[float, ...] = ()
    auto_mark: float = 0.0
    ends: bool = False
    anchors: tuple[int, ...] = ()
    mark_legs: bool = False
    lifetime: float = 0.0
    members: dict[str, str] = field(default_factory=dict)  # of ours in the body of requests, by name, as JSON
    hour_denied: bool = False
    is_side: bool = False  # a branch of a sub-agent, or of a side request
    held: MarkCache = field(default_factory=MarkCache)
    evidence: Evidence = field(default_factory=Evidence)
    yardstick: Yardstick = field(default_factory=Yardstick)
    numbers: Mirror = field(default_factory=Mirror, compare=False, repr=False)
    known: dict[str, Page] = field(default_factory=dict)
    shown: dict[str, Source] = field(default_factory=dict)
    schemas: dict[str, ToolAsSent] = field(default_factory=dict)
    _past: EvictedPages = field(default_factory=EvictedPages)
    _news: list[str] = field(default_factory=list)
    _counts: dict[str, int] = field(default_factory=dict)
    _contents: dict[str, bytes] = field(default_factory=dict)
    _calls: dict[str, tuple[str, str, Deed]] = field(default_factory=dict)
    _made: list[tuple[str, ...]] = field(default_factory=list)
    _unread: list[tuple[str, str]] = field(default_factory=list)
    _quotes: Index = field(default_factory=Index)
    _dead: Supersession = field(default_factory=_by_what_was_read)

    def advance(
        self, call: int, attempt: int, at: float, items: Items, size: int = 0, model: str = "", around: str = ""
    ) -> None:
        """Take the request of a call, of ``size`` bytes; what the latest request had already stays as it is.

        ``around`` is a key of what is around the items (tools, a system prompt): another key, another prompt.
        """
        self.catch_up()
        self._note_sent()
        if self.refresh is not None:
            self.account.rescued += self.refresh.rescues(self.at, at)
        self.idle = at - (self.refresh.at if self.refresh else self.at) if self.call else 0.0
        pause = at - self.at if self.call and attempt == 1 else 0.0
        self.refresh = None
        if self.call and attempt == 1:
            self.gaps.append(self.idle)
        self.call, self.attempt, self.at, self.model = call, attempt, at, model
        self.yardstick.begin(call, model)
        fresh_from = common_length(self.norms, items.norms)
        rewritten = ["client_rewrote_history"] if fresh_from < len(self.norms) else []
        self.facts, self._news = self._news + rewritten, []
        self.last_end = len(self.slots) - 1
        repeated = set(self.norms[fresh_from:])  # by a client that writes its history anew: no news either
        old = self.slots[:]
        place = self._cut(common_length(self.digests, items.digests))
        kept = len(self.slots)
        view = RequestView(items.norms, items.raw, self.read, self.expand)
        legs = self._find_legs(place, view)
        del self._made[place:]
        while place < len(items.digests):
            new = place >= fresh_from and items.norms[place] not in repeated
            place = self._take(place, items, view, legs.get(place), new=new)
        if pause > SHORTEST:
            answered = any(view.contents(new).results for new in range(fresh_from, len(items.norms)))
            self.pauses.append(Pause(pause, WaitsFor.TOOL if answered else WaitsFor.USER))
        if len(self.known) > len(self.pages):  # what left the prompt is another page when it comes back
            here = {page.name: page for page in self.pages}
            for name in self.known.keys() - here.keys():
                self._quotes.forget(name)
            self.known = here
        self.digests, self.norms = list(items.digests), list(items.norms)
        self.head_marks, self.auto_mark = tuple(items.head_marks), items.auto_mark
        unchanged = self._unchanged(old, kept)
        self.held.cut(unchanged if around == self.around else -1)
        self._reckon(size, kept, model, around, unchanged)

    def _reckon(self, size: int, kept: int, model: str, around: str, unchanged: int) -> None:
        """Count the prompt of a request of ``size`` bytes, and the savings.

        Its first ``kept`` slots are the same bytes as before, its first ``unchanged`` say the same, cache marks aside.
        """
        measure, tool = self.yardstick, TOOL if self.tool else 0
        spared = round(measure.scale * self._spared())
        self.before, self.prompt = self.prompt, max(0, measure.tokens(size - self.freed) - spared + tool)
        shared, again = self._shared(kept, around), self._shared(unchanged, around)
        self.around = around
        self.evidence.sent(self.at, model, self.prompt, shared)
        tools_pay = self.tools is not None and bool(self.tools.shortened)  # for the tool that is added
        if self.attempt == 1:
            self.account.send(self.prompt, again, self.idle)
            self.account.read += spared - (0 if tools_pay else tool)
            if spared > 0:
                self.account.prompts.append((self.prompt + spared, self.prompt))

    def _shared(self, slots: int, around: str) -> int:
        """The tokens of the prompt that it shares with the one before, where that has this many slots of it."""
        if not slots or around != self.around:
            return 0
        return max(0, self.prompt - self.yardstick.tokens(sum([slot.size for slot in self.slots[slots:]])))

    # ---- what a provider that caches at marks holds

    def sent_marks(self) -> dict[int, float]:
        """The marks of the latest request as it goes out: the prefix that each ends, and the lifetime it asks for."""
        end = len(self.slots)
        marks = {slot + 1: self.slots[slot].marks[-1] for slot in sorted(self.marked)}
        if self.auto_mark:
            marks[end] = self.auto_mark
        if self.head_marks:
            marks[0] = max(self.head_marks)
        if self.ends:
            marks |= {0: FIVE_MINUTES, end: FIVE_MINUTES}
        marks = {anchor: self.anchor_lifetime(anchor) for anchor in self.anchors if anchor <= end} | marks
        return dict.fromkeys(marks, self.lifetime) if self.lifetime else marks

    @property
    def client_prefixes(self) -> list[int]:
        """The prefixes that are marked without our anchors."""
        ends = [0] if self.head_marks or self.ends else []
        ends += [slot + 1 for slot in sorted(self.marked)]
        return [*ends, len(self.slots)] if self.auto_mark or self.ends else ends

    def anchor_lifetime(self, prefix: int) -> float:
        """What a mark of ours at the end of this prefix asks for: as long as the client's next mark behind it.

        A longer lifetime may not follow a shorter one. Where no mark follows, as long as the last one before.
        """
        behind = next((self.slots[slot].marks[0] for slot in sorted(self.marked) if slot + 1 >= prefix), 0.0)
        return self.lifetime or behind or self.asked_lifetime or FIVE_MINUTES

    @property
    def asked_lifetime(self) -> float:
        """The lifetime that the mark at the end of the prompt asks for; 0 if the client marks no end that grows."""
        if self.auto_mark or self.ends:
            return self.lifetime or self.auto_mark or FIVE_MINUTES
        last = max(self.marked, default=-1)
        if not 0 <= last >= len(self.slots) - NEAR_THE_END:
            return 0.0
        return self.lifetime or self.slots[last].marks[-1]

    @property
    def client_marks(self) -> int:
        """How many cache marks the client has set."""
        in_items = sum(len(self.slots[slot].marks) for slot in self.marked)
        return len(self.head_marks) + in_items + bool(self.auto_mark)

    @property
    def free_marks(self) -> int:
        """How many cache marks we may still set."""
        return max(0, MOST_MARKS - self.client_marks - (2 if self.ends else 0))

    def set_marks(self, *, ends: bool, anchors: Iterable[int], legs: bool = False) -> None:
        """Mark these prefixes, and perhaps the ends of hidden legs, from now on."""
        self.ends, self.anchors, self.mark_legs = ends, tuple(anchors), legs

    def ask_for(self, lifetime: float) -> None:
        """Have all marks ask for so many seconds from now on; 0 for what the client asks for."""
        if lifetime != self.lifetime:
            self.lifetime = lifetime
            self.evidence.granted = 0.0  # was granted for what was asked before

    def positions(self, slot: int) -> int:
        """The positions of a slot; hidden legs of the latest call, behind all slots, are one each."""
        return self.slots[slot].positions if slot < len(self.slots) else 1

    def _note_sent(self) -> None:
        """Take what the latest request, and its hidden legs, left with the provider."""
        if not self.call or self.evidence.apart:  # another prompt than this one went out
            return
        marks = self.sent_marks()
        self.held.send(self.at, marks, self.positions)
        legs = [leg for leg in self.legs_now() if not leg.mixed]
        if legs and self.mark_legs:
            end = len(self.slots) + MESSAGES_A_LEG * len(legs)
            self.held.send(self.at, {end: self.anchor_lifetime(end)}, self.positions)

    def warm(self, refresh: Refresh, cost: float) -> None:
        """The latest prompt, with its hidden legs, is sent once more, only to keep it cached."""
        self._note_sent()
        self.account.refreshes += cost
        self.refresh = refresh
        self.evidence.at = refresh.at
        self.held.send(refresh.at, self.sent_marks(), self.positions)

    def _unchanged(self, old: Sequence[Slot], kept: int) -> int:
        """How many slots at the beginning say the same as before, where the first ``kept`` are the same objects."""
        count = kept + common_length([slot.norm for slot in old[kept:]], [slot.norm for slot in self.slots[kept:]])
        if count == len(old):  # hidden legs of the call before follow it directly now
            while count < len(self.slots) and self.slots[count].item < 0:
                count += 1
        return count

    @property
    def freed(self) -> int:
        """The bytes that the client's tools are shorter by, as they are sent."""
        return 0 if self.tools is None else self.tools.freed

    def _spared(self) -> int:
        """Our own tokens that the prompt is shorter than the client's, by its stubs; legs make it longer."""
        gained = sum([page.gain for page in self.pages if page.stub])
        return gained - tokens_of(sum([one.longer for one in self.expanded]))

    def catch_up(self) -> None:
        """Index what came with the latest call: done while the model thinks, or before the next call is taken."""
        for name, text in self._unread:
            self._quotes.add(name, text)
        self._unread.clear()

    # ---- what the log says of the branch

    def apply(self, event: Event, content: Leg | Toolset | None = None) -> None:
        """Carry out what an event of this branch says, as it is logged or as it is read again.

        ``content`` is the leg or the decision on tools that the event refers to.
        """
        match event:
            case Repacked():
                self._repack(event)
            case Marked():
                self.set_marks(ends=event.ends, anchors=event.anchors, legs=event.legs)
                self.ask_for(event.lifetime)
                self.members = dict(event.members)
            case ToolsDecided() if isinstance(content, Toolset):
                self._decide_tools(event, content)
            case LegFinished() if isinstance(content, Leg):
                self.keep_leg(event.call, event.attempt, content, event.pages)
                if event.usage is not None:
                    self._learn_cache(event.usage)
            case Warmed() if (event.call, event.attempt) == (self.call, self.attempt):
                self.warm(Refresh(event.at, event.stake, event.lifetime), event.cost)
            case Warmed():  # the branch went on while it was under way
                self.account.refreshes += event.cost
            case WarmingStopped(reason=reason) if reason in (WarmingEnd.WROTE, WarmingEnd.REFUSED):
                self.warming_ended = reason
            case Bypassed(reason=reason, detail=detail) if reason in WENT_IN_FULL:
                self.sent_in_full(detail if reason == BypassReason.REFUSED else "")
            case _:
                pass

    def learn_usage(self, usage: Usage, size: int, call: int) -> None:
        """Learn from the provider's count of a call's prompt, which had ``size`` bytes; 0 where that is unknown."""
        if usage.input and size:
            self.reported = (usage.input, size)
            self.yardstick.report(call, usage.input, size)
        self._learn_cache(usage)

    def _learn_cache(self, usage: Usage) -> None:
        self.evidence.reported(usage.input, usage.cached_if_told)
        self.evidence.granted_by(usage.written_5m, usage.written_1h)
        self.hour_denied |= self.lifetime >= HOUR and usage.written_5m > 0 and not usage.written_1h

    def sent_in_full(self, stopped: str = "") -> None:
        """Note that a call went out as the client sent it; ``stopped`` says why paging ends with it, if it does."""
        self.stopped = stopped or self.stopped
        self.evidence.sent_apart()

    def _repack(self, repacked: Repacked) -> None:
        if repacked.tool:
            self.tool = repacked.tool
            self.held.cut(-1)
        if repacked.window:
            self.windows[self.model] = repacked.window
        self.evict(repacked.pages)
        self.account.repacks += repacked.price
        self.account.unwritten += 0 if repacked.warm else repacked.saved
        self.evidence.changed()

    def _decide_tools(self, event: ToolsDecided, decided: Toolset) -> None:
        self.tool = event.tool or self.tool
        changed = decided.shortened or (self.tools is not None and self.tools.shortened)
        self.tools = decided
        self.schemas |= {one.handle: one for one in decided.shortened.values()}
        if changed or event.tool:
            self.held.cut(-1)
        if changed and self.call > 1:
            self.evidence.changed()

    def evict(self, gone: Iterable[Evicted]) -> None:
        """Send these stubs instead of their pages from now on."""
        for one in gone:
            page = self.known.get(one.page)
            if page is None or page.key != one.key:
                continue
            page.stub, page.stub_tokens = one.stub, tokens_of(len(one.stub.encode()))
            self.held.cut(page.slot)
            self.numbers.touch(page)
            self.slots[page.slot].sent = None
            self.changed.add(page.slot)
            self._past.keep(page)
            source = Source(bytes.fromhex(one.message), one.key)
            # What was brought back is below a heading; the page itself is kept where it came from.
            self.shown[page.handle] = self.shown.get(page.handle, source) if page.origins else source

    def keep_leg(self, call: int, attempt: int, leg: Leg, handles: Iterable[str]) -> None:
        """Keep a hidden leg; the pages that it brought back are in use. One of a call left behind has no place."""
        if (call, attempt) != (self.call, self.attempt):
            return
        place = len(self.digests)
        before = self.norms[-1] if self.norms else b""
        self.hidden.setdefault(place, Hidden(before, [])).legs.append(leg)
        wanted = set(handles)
        if wanted:
            self._news.append("fault")
            self.account.faults += 1
            self.account.context += 0 if leg.mixed else self.prompt
            self.account.written += self.yardstick.tokens(sum(len(raw) for raw in leg.results))
        self._past.fault(wanted, self.known, self.call)
        for page in self.known.values():
            if page.handle in wanted:
                page.fault(self.call)
                self.numbers.touch(page)

    def knows(self, handle: str) -> bool:
        """Whether the model was shown this handle in place of something."""
        return handle in self.shown or handle in self.schemas

    def legs_now(self) -> list[Leg]:
        """The hidden legs of the latest call so far."""
        kept = self.hidden.get(len(self.digests))
        return kept.legs if kept else []

    def evicted(self, page: Page, stub: str) -> Evicted:
        """What is logged of a page that is to go."""
        return Evicted(page.name, self.slots[page.slot].digest.hex(), page.key, stub)

    def about(self, page: Page) -> str:
        """The main argument of the call that a page belongs to."""
        return self._calls.get(page.call_id, ("", "", None))[1]

    def named(self, page: Page) -> tuple[str, str]:
        """The tool and the main argument that a page is known by: those that made it, also if it was brought back."""
        made = [self._calls[call_id][:2] for call_id in page.makers if call_id in self._calls]
        if not made:
            return page.tool, self.about(page)
        if len(made) > 1:
            return self.tool, ", ".join(" ".join(one) for one in made)
        tool, about = made[0]
        return (tool if page.whole else f"part of {tool}"), about

    def copy(self) -> "PageTable":
        """A table of its own for a branch that forks off here."""
        pages = {name: replace(page) for name, page in self.known.items()}
        slots = [replace(slot, pages=[pages[page.name] for page in slot.pages]) for slot in self.slots]
        hidden = {place: replace(kept, legs=list(kept.legs)) for place, kept in self.hidden.items()}
        return replace(
            self,
            slots=slots,
            pages=[page for slot in slots for page in slot.pages],
            changed=set(self.changed),
            numbers=Mirror(),
            known=pages,
            hidden=hidden,
            expanded=list(self.expanded),
            facts=list(self.facts),
            refresh=None,  # it rescues one call at most
            account=self.account.copy(),
            evidence=self.evidence.copy(),
            marked=set(self.marked),
            held=self.held.copy(),
            yardstick=self.yardstick.copy(),
            gaps=list(self.gaps),
            pauses=list(self.pauses),
            windows=dict(self.windows),
            _news=list(self._news),
            _past=self._past.copy(self.known, pages),
            shown=dict(self.shown),
            schemas=dict(self.schemas),
            _counts=dict(self._counts),
            _contents=dict(self._contents),
            _calls=dict(self._calls),
            _made=list(self._made),
            _unread=list(self._unread),
            _quotes=self._quotes.copy(),
            _dead=self._dead.copy(),
        )

    def _find_legs(self, first: int, view: RequestView) -> dict[int, Placed]:
        """The places of hidden legs from the client's item ``first`` on; those whose place is gone are dropped."""
        again = view.norms == self.norms  # another attempt makes legs of its own
        sought = {
            place: kept
            for place, kept in self.hidden.items()
            if place >= first and not (again and place == len(self.norms))
        }
        places = find(sought, self._made, first, view) if sought else {}
        found = sum(len(one.hidden.legs) for one in places.values())
        self.lost_legs = sum(len(kept.legs) for kept in sought.values()) - found
        self.hidden = {place: kept for place, kept in self.hidden.items() if place < first}
        self.hidden |= {place: one.hidden for place, one in places.items()}
        return places

    def _cut(self, keep: int) -> int:
        """Forget all slots from the client's item ``keep`` on, whole expansions at a time; the item to go on with."""
        while self.expanded and self.expanded[-1].item + max(self.expanded[-1].taken, 1) > keep:
            keep = min(keep, self.expanded.pop().item)
        last = self.expanded[-1] if self.expanded else Expanded(0, 0, 0, 0)
        first = last.slot + last.slots + keep - (last.item + last.taken)
        gone = [page for slot in self.slots[first:] for page in slot.pages]
        for page in gone:
            self._counts[page.series] -= 1
        del self.slots[first:], self.pages[len(self.pages) - len(gone) :]
        self.numbers.cut(len(self.pages), first)
        self.changed = {slot for slot in self.changed if slot < first}
        self.marked = {slot for slot in self.marked if slot < first}
        return keep

    def _take(self, place: int, items: Items, view: RequestView, legs: Placed | None, *, new: bool) -> int:
        """Add the next of the client's items, with hidden legs put back; the item to go on with."""
        taken = 0 if legs is None else self._put_back(place, items, legs, new=new)
        if not taken:
            raw = items.raw(place)
            slot = Slot(items.digests[place], place, norm=items.norms[place], marks=marks_in(raw))
            self._add(slot, len(raw), view.contents(place), new=new)
        end = place + (taken or 1)
        self._made += map(view.ids, range(place, end))
        return end

    def _put_back(self, place: int, items: Items, legs: Placed, *, new: bool) -> int:
        """Put hidden legs back at this place; how many of the client's items they replace."""
        expansion, first = legs.expansion, len(self.slots)
        for raw in expansion.items:
            digest, marks = sha256(raw).digest(), marks_in(raw)
            norm = sha256(without_marks(raw)).digest() if marks else digest
            self._add(Slot(digest, -1, raw, norm=norm, marks=marks), len(raw), self.read(raw), new=new)
            for page in self.slots[-1].pages:
                page.hold(self.call)
        replaced = sum(len(items.raw(at)) for at in range(place, place + expansion.taken))
        longer = sum(map(len, expansion.items)) - replaced
        self.expanded.append(Expanded(place, expansion.taken, first, len(expansion.items), longer))
        return expansion.taken

    def _add(self, slot: Slot, size: int, found: Contents, *, new: bool) -> None:
        slot.size, slot.reasoning = size, found.reasoning
        slot.positions, slot.markable = found.positions, found.markable
        self.slots.append(slot)
        if slot.marks:
            self.marked.add(len(self.slots) - 1)
        if new:
            self._note_calls(found)
        slot.pages = [self._page(page, new=new, ours=slot.item < 0) for page in found.pages]
        for row, page in enumerate(slot.pages, len(self.pages)):
            page.row = row
        self.pages += slot.pages
        if any(page.stub for page in slot.pages):
            self.changed.add(len(self.slots) - 1)
        for name in sorted(self._quotes.used(found.said)) if new and found.said else ():
            quoted = self.known.get(name)
            if quoted is not None:  # by the answer to the call before this one: it was in use then
                quoted.use(self.call - 1)
                self.numbers.touch(quoted)

    def _note_calls(self, found: Contents) -> None:
        for made in found.calls:
            self._calls[made.call_id] = (made.tool, main_argument(made.arguments), deed_of(made.tool, made.arguments))
        paged = {page.call_id for page in found.pages if page.kind == "result"}
        for call_id, failed in found.results:
            if call_id in self._calls and call_id not in paged:
                self._bury(self._dead.edited(self._calls[call_id][2], failed=failed))

    def _page(self, found: Found, *, new: bool, ours: bool) -> Page:
        came = brought_by(found.text) if ours and found.kind == "result" else None
        if came is not None and came.content is not None:
            found = found_again(found, came.content)
        handle = self._handle(found)
        back = came is not None and came.content is not None
        series = f"{handle}{BACK}" if back else handle
        number = self._counts[series] = self._counts.get(series, 0) + 1
        name = f"{series}{number}" if back else page_name(handle, number)
        page = self.known.get(name)
        if page is not None and page.key == found.key:
            page.slot = len(self.slots) - 1
            return page
        tool = self._calls.get(found.call_id, ("",))[0]
        place, size = len(self.slots) - 1, found.size
        page = Page(
            name, handle, found.key, found.kind, tool, found.call_id, size, self.call, place, self.call, found.is_error
        )
        self.known[name] = page
        self._past.hand_on(page, came)
        if new:
            self._note_page(page, found, number)
        return page

    def _note_page(self, page: Page, found: Found, number: int) -> None:
        """What a new page means for those before it: the same again, or a later state of the same thing."""
        self._unread.append((page.name, found.text))
        if page.origins:
            return
        earlier = [self.known[name] for name in duplicates(page.handle, number) if name in self.known]
        if page.kind == "result" and any(one.stub for one in earlier):
            page.fault(self.call)  # the tool was run again for what was evicted
            self.facts.append("fault")
            self.account.faults += 1
            self.account.context += self.prompt
            self.account.written += self.yardstick.tokens(page.size)
        for one in earlier:
            one.superseded = True
            self.numbers.touch(one)
        if page.call_id in self._calls:
            deed = self._calls[page.call_id][2]
            part: Literal["result", "argument"] = "result" if page.kind == "result" else "argument"
            self._bury(self._dead.note(page.name, part, deed, failed=page.is_error))

    def _bury(self, names: Iterable[str]) -> None:
        """Count pages as dead, with all that was brought back of them since."""
        dead = [self.known[name] for name in names if name in self.known]
        back = [name for page in dead for name in self._past.back.get(page.handle, ())]
        for page in [*dead, *(self.known[name] for name in back if name in self.known)]:
            page.superseded = True
            self.numbers.touch(page)

    def _handle(self, found: Found) -> str:
        """The page's handle, a longer one where another content has it already."""
        if self._contents.setdefault(found.handle, found.digest) == found.digest:
            return found.handle
        return longer(found.handle, found.text.encode("utf-8", "surrogatepass"), LONGER)


def same_slots(old: Sequence[Slot], new: Sequence[Slot]) -> int:
    """How many slots are the very same at the beginning: a table only ever cuts its slots off and adds others."""
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if old[middle - 1] is new[middle - 1] else (low, middle - 1)
    return low


def common_length(left: Sequence[bytes], right: Sequence[bytes]) -> int:
    """How many elements two lists share at their beginning."""
    shorter = min(len(left), len(right))
    if left[:shorter] == right[:shorter]:
        return shorter
    low, high = 0, shorter
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if left[:middle] == right[:middle] else (low, middle - 1)
    return low
