"""The parts of a prompt as it went upstream: the client's, without its evicted pages, and with the tokens of paging.

Evicted pages and shortened tools are taken out whole. All that the prompt is longer by than the rest of the client's
was put in by paging: stubs, short forms of tools, the tool that was added, hidden legs.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from instrumentation.accounting.story import PageStory, StoryParts
from instrumentation.replay.paged_prompts import short_tools
from instrumentation.replay.prepared_recording import PreparedCall
from pager.paging.pages.duplicates import handle_in, next_name
from pager.paging.pages.page import Page
from pager.paging.pages.page_table import PageTable

PAGES = ("results", "stale", "superseded", "duplicates")
TOOLS = ("unused_schemas", "schemas")
EVICTED, FETCHED = b"ef"


class ClientPages:
    """The pages of one branch in the client's own prompts, with a state for each answered call."""

    def __init__(self, pages: Iterable[PageStory]) -> None:
        self._pages = {page.name: page for page in pages}
        self._letters = {name: bytearray(page.states, "ascii") for name, page in self._pages.items()}

    def evicted(self, table: PageTable, at: int) -> dict[str, int]:
        """The tokens of the client's pages that are evicted at a call, by part."""
        tokens = dict.fromkeys(PAGES, 0)
        for page in table.pages:  # long sessions have many: this is the hot loop of a report
            if page.stub and (own := self._pages.get(page.name)) is not None and own.states[at] != ".":
                tokens[self._part(page, own, at)] += own.tokens
                self._letters[page.name][at] = EVICTED
        return tokens

    def _part(self, page: Page, own: PageStory, at: int) -> str:
        """The part of an evicted page: a duplicate first, then superseded, then stale."""
        again = self._pages.get(next_name(page.name))
        if again is not None and again.states[at] != ".":
            return "duplicates"
        if page.superseded:
            return "superseded"
        return "stale" if own.states[at] == "s" else "results"

    def page_in(self, handles: Collection[str], at: int) -> None:
        """Mark the evicted pages of these handles as fetched back at a call."""
        for name, letters in self._letters.items() if handles else ():
            if letters[at] == EVICTED and handle_in(name) in handles:
                letters[at] = FETCHED

    def stories(self) -> Iterator[PageStory]:
        """The pages, with their states after paging."""
        for name, page in self._pages.items():
            yield msgspec.structs.replace(page, states=self._letters[name].decode())


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
