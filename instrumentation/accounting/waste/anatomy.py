"""Takes the prompts of a session apart: every token of every call by what it is, and by why it need not have been sent.

The definitions are those of ``StoryParts``; docs/waste.md says them for users. The tokens are those that replay
counts, so that the parts of a call add up to its prompt as it is priced.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from instrumentation.accounting.billing import tokens_in
from instrumentation.accounting.story import WASTE, Addable, PageStory, StoryParts
from instrumentation.accounting.waste.branch import WasteBranch, WastePage
from instrumentation.accounting.waste.items import shared, taken_apart
from instrumentation.replay.page_needs import Need
from instrumentation.replay.prepared_recording import Prepared, PreparedCall
from instrumentation.replay.recording import RecordedCall
from pager.paging.pages.stub import main_argument


class CallAnatomy(NamedTuple):
    """One call: the parts of its prompt as the client sent it, and the tokens of the working set.

    ``sent`` are the bytes of the prompt, ``fresh`` those of them that no answered call of the session had sent before.
    Where it was not ``answered``, it counts in no sum. ``scale`` is how many tokens of ``client`` one of our own is.
    """

    client: StoryParts
    working: int
    sent: int
    fresh: int
    answered: bool = True
    scale: float = 1.0


class Totals(Addable, frozen=True):
    """The sums of some answered calls, of one session or of many."""

    calls: int = 0
    client: StoryParts = StoryParts()
    sent: int = 0
    fresh: int = 0

    @property
    def amplification(self) -> float:
        """How often a byte was sent: those of all prompts for each that was new; 0 where nothing was sent."""
        return self.sent / self.fresh if self.fresh else 0.0

    @property
    def waste(self) -> Mapping[str, float]:
        """What need not have been sent, by cause, as shares of all tokens."""
        return {cause: self.share(cause) for cause in WASTE}

    @property
    def stale(self) -> float:
        """The share of results that are past their use."""
        return self.share("stale")

    @property
    def unused_schemas(self) -> float:
        """The share of tools that are never called."""
        return self.share("unused_schemas")

    def share(self, part: str) -> float:
        """The share of one part of all tokens; 0 where there are none."""
        total = self.client.total
        return getattr(self.client, part) / total if total else 0.0


@dataclass(frozen=True, slots=True)
class Anatomy:
    """A session: each of its steps in order, and its branches with their pages."""

    calls: Sequence[CallAnatomy]
    branches: Sequence[WasteBranch]

    @property
    def totals(self) -> Totals:
        """The sums of its answered calls."""
        return Totals.sum(Totals(1, call.client, call.sent, call.fresh) for call in self.calls if call.answered)

    def pages(self, chosen: Sequence[int] | None = None, *, with_content: bool = False) -> list[PageStory]:
        """What became of each page in the order of their coming, branch by branch.

        There is a letter for each of the ``chosen`` steps, by default for all; pages that are in none of them are left
        out. The text of a page is given only ``with_content``.
        """
        wanted = range(len(self.calls)) if chosen is None else chosen
        found = []
        for branch in self.branches:
            places = {step: place for place, step in enumerate(branch.steps)}
            columns = [places.get(step, -1) for step in wanted]
            for page in branch.pages:
                letters = _letters(page, len(branch.steps))
                states = "".join([letters[place] if place >= 0 else "." for place in columns])
                if states.strip("."):
                    found.append(_page_story(page, branch.number, states, with_content=with_content))
        return found


def anatomy(prepared: Prepared) -> Anatomy:
    """Take the prompts of a session apart."""
    reader = _WasteReader(prepared)
    calls = [reader.take(at, call, needs) for at, (call, needs) in enumerate(_answers(prepared))]
    return Anatomy(calls, list(reader.branches.values()))


def _answers(prepared: Prepared) -> Iterator[tuple[PreparedCall, Sequence[Need]]]:
    return zip(prepared.calls, prepared.needs, strict=True)


def _letters(page: WastePage, steps: int) -> list[str]:
    """The states of a page at each step of its branch."""
    ends = [*(at for at, _ in page.marks[1:]), steps]
    letters = ["."] * page.marks[0][0]
    for (begin, letter), end in zip(page.marks, ends, strict=True):
        letters += letter * (end - begin)
    for at in page.uses:
        letters[at] = "u"
    return letters


def _page_story(page: WastePage, branch: int, states: str, *, with_content: bool) -> PageStory:
    tool, arguments = (page.made.tool, page.made.arguments) if page.made else ("", "")
    about, content = (main_argument(arguments), page.found.text) if with_content else ("", "")
    return PageStory(page.name, branch, page.found.kind, tool, page.tokens, states, about, content)


def last_uses(prepared: Prepared) -> dict[int, dict[str, int]]:
    """By branch and handle, the number of the last call whose answer needs the page.

    A branch's calls up to a fork are also those of the branch that forks: what only that one needs later is in use
    here up to the fork.
    """
    found: dict[int, dict[str, int]] = {}
    forks: dict[int, tuple[int, int]] = {}
    for call, needs in _answers(prepared):
        step = call.step
        if step.branch not in found and step.parent is not None:
            forks[step.branch] = (step.parent, step.fork_call)
        own = found.setdefault(step.branch, {})
        own.update((need.asked, call.number) for need in needs)
    for branch, (parent, fork_call) in reversed(forks.items()):
        above = found.get(parent, {})
        for handle, number in found[branch].items():
            above[handle] = max(above.get(handle, 0), min(number, fork_call))
    return found


class Head(NamedTuple):
    """The request outside of its items: tokens of tools that are called or never called, and of all else.

    ``tools`` are the tools with their bytes, ``beside`` the bytes of all else.
    """

    schemas: int
    unused: int
    rest: int
    tools: tuple[tuple[bytes, int], ...]
    beside: int


def head_of(step: RecordedCall, called: frozenset[str]) -> Head:
    """The request of a step outside of its items, in a session that calls these tools.

    A tool that is not the client's own is taken to be called: the provider may run it where nobody sees.
    """
    offers = step.offers.tools if step.offers else ()
    sizes = [one.size for one in offers]
    idle = sum(one.size for one in offers if one.tool.name not in called and not one.fixed)
    beside = max(0, step.outside - sum(sizes))
    rest, schemas, unused = shared(tokens_in(step.outside), [beside, sum(sizes) - idle, idle])
    return Head(schemas, unused, rest, tuple((one.tool.raw, one.size) for one in offers), beside)


class _WasteReader:
    """Takes the calls of a session in their order."""

    def __init__(self, prepared: Prepared) -> None:
        self.branches: dict[int, WasteBranch] = {}
        self._last = last_uses(prepared)
        self._items = {digest: taken_apart(raw, prepared.dialect) for digest, raw in prepared.blobs.items()}
        self._called = frozenset(name for step in prepared.recording.steps for name in step.called)
        self._heads: dict[bytes, Head] = {}
        self._sent: set[object] = set()

    def take(self, at: int, call: PreparedCall, needs: Sequence[Need]) -> CallAnatomy:
        """The next call."""
        step, head = call.step, self._head(call)
        if not call.items:  # a request that could not be read
            client = StoryParts(schemas=head.schemas, unused_schemas=head.unused, other=head.rest)
            return CallAnatomy(client, 0, step.outside, step.outside, step.answered)
        branch = self._branch(step)
        branch.advance(at, call.number, call.items, self._items)
        branch.use(dict.fromkeys(need.asked for need in needs))
        client, fresh = _parts(branch, head), self._fresh(branch, head)
        if step.answered:
            self._sent |= fresh.keys()
            branch.answered()
            branch.known.add(head.beside)
        return CallAnatomy(client, branch.working, step.outside + branch.bytes, sum(fresh.values()), step.answered)

    def _branch(self, step: RecordedCall) -> WasteBranch:
        found = self.branches.get(step.branch)
        if found is None:
            last = self._last[step.branch]
            parent = None if step.parent is None else self.branches.get(step.parent)
            found = parent.fork(step.branch, last, step.fork_call) if parent else WasteBranch(step.branch, last)
            self.branches[step.branch] = found
        return found

    def _head(self, call: PreparedCall) -> Head:
        key = call.prompt.first
        if key not in self._heads:
            self._heads[key] = head_of(call.step, self._called)
        return self._heads[key]

    def _fresh(self, branch: WasteBranch, head: Head) -> dict[object, int]:
        """What the session had not sent before, and its bytes."""
        fresh: dict[object, int] = {item.norm: item.size for item in branch.new()}
        fresh.update(head.tools)
        fresh[head.beside] = head.beside
        return {key: size for key, size in fresh.items() if key not in self._sent}


def _parts(branch: WasteBranch, head: Head) -> StoryParts:
    """The parts of a branch's latest prompt."""
    parts = {name: branch.tokens[name] for name in StoryParts.__struct_fields__}
    new = sum(item.tokens["system"] for item in branch.new() if item.norm not in branch.known)
    new += 0 if head.beside in branch.known else head.rest
    resent = parts["system"] + head.rest - new
    return StoryParts(
        **parts | {"system": new, "resent": resent, "schemas": head.schemas, "unused_schemas": head.unused}
    )
