"""The parts of a prompt as it went upstream: the client's, without what was evicted, and with what paging put in.

What is evicted or sent short is taken out whole. All that the prompt is longer by than what is left of the client's was
put in by paging: stubs, short forms of tools, the tool that was added, hidden legs.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from instrumentation.accounting.call_story import PageStory, StoryParts
from instrumentation.replay.paged_prompts import short_tools
from instrumentation.replay.prepared import PreparedCall
from pager.paging.page import Page
from pager.paging.page_table import PageTable

PAGES = ("results", "stale", "superseded", "duplicates")
TOOLS = ("unused_schemas", "schemas")


class _Known:
    """A page of the client's, and its letters with what paging made of them."""

    __slots__ = ("copies", "letters", "page")

    def __init__(self, page: PageStory) -> None:
        self.page, self.letters = page, bytearray(page.states, "ascii")
        self.copies: Sequence[PageStory] = ()

    def stands_again(self, at: int) -> bool:
        """Whether the prompt of a call has its content once more, further on."""
        return any(one.states[at] != "." for one in self.copies)


class ClientPages:
    """The pages of one branch as they stand in the client's own prompts, with a state for each answered call."""

    def __init__(self, pages: Iterable[PageStory]) -> None:
        self._known = {page.name: _Known(page) for page in pages}
        copies: dict[str, list[PageStory]] = {}
        for known in self._known.values():
            copies.setdefault(known.page.name.partition("@")[0], []).append(known.page)
        for same in copies.values():
            same.sort(key=lambda page: int(page.name.partition("@")[2] or 1))
            for place, page in enumerate(same, 1):
                self._known[page.name].copies = same[place:]

    def evicted(self, table: PageTable, at: int) -> dict[str, int]:
        """The tokens of the client's pages that are evicted at a call, by what they are counted as."""
        tokens = dict.fromkeys(PAGES, 0)
        known, gone = self._known, ord("e")
        for page in table.pages:  # long sessions have many: this is the hot loop of a report
            if page.stub and (one := known.get(page.name)) is not None and one.page.states[at] != ".":
                tokens[_part(page, one, at)] += one.page.tokens
                one.letters[at] = gone
        return tokens

    def page_in(self, handles: Collection[str], at: int) -> None:
        """Mark the evicted pages of these handles as asked for at a call."""
        for one in self._known.values() if handles else ():
            if one.letters[at] == ord("e") and one.page.name.partition("@")[0] in handles:
                one.letters[at] = ord("f")

    def told(self) -> Iterator[PageStory]:
        """The pages, with what paging made of them."""
        for one in self._known.values():
            yield msgspec.structs.replace(one.page, states=one.letters.decode())


def _part(page: Page, known: _Known, at: int) -> str:
    """What a page is counted as: a duplicate first, then superseded, then stale."""
    if known.copies and known.stands_again(at):
        return "duplicates"
    if page.superseded:
        return "superseded"
    return "stale" if known.page.states[at] == "s" else "results"


class Whole(NamedTuple):
    """The tools of a call as the client sent them: their bytes by name, which are never called, and tokens of both."""

    sizes: Mapping[str, int]
    idle: frozenset[str]
    used: int
    unused: int


def sent_parts(client: StoryParts, gone: Mapping[str, int], total: int) -> StoryParts:
    """The client's parts without what is gone, in a prompt of so many tokens in all."""
    left = {name: getattr(client, name) for name in StoryParts.__struct_fields__}
    for part, tokens in gone.items():
        rest = tokens
        for name in (part, *(PAGES if part in PAGES else TOOLS)):  # as much as there is of it, then of what is like it
            taken = min(rest, left[name])
            left[name], rest = left[name] - taken, rest - taken
    left["stubs"] = max(0, total - sum(left.values()))
    return StoryParts(**left)


def shortened(call: PreparedCall, table: PageTable, whole: Whole) -> dict[str, int]:
    """The tokens of the tools that went out short, as the client had sent them."""
    short = short_tools(call, table)
    gone = short.shortened.keys() & whole.sizes.keys() if short else frozenset()
    groups = (("unused_schemas", whole.unused, whole.idle), ("schemas", whole.used, whole.sizes.keys() - whole.idle))
    return {part: _of(tokens, names & gone, names, whole.sizes) for part, tokens, names in groups if names & gone}


def _of(tokens: int, some: Collection[str], names: Collection[str], sizes: Mapping[str, int]) -> int:
    """The share that some tools have in the tokens of several, by their bytes."""
    return round(tokens * sum(sizes[name] for name in some) / max(1, sum(sizes[name] for name in names)))
