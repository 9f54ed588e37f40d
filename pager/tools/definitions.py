"""The tools of a request, as the client offers them, and their places in it.

A tool is shortened in place: its description and its parameters become other values, and all other bytes of its entry
stay. Where a list of tools was seen before, nothing of it is read again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pager.request_values import Span
from pager.tools.shorten import Slim, Tool, dumped

Edit = tuple[Span, bytes]


@dataclass(frozen=True, slots=True)
class Offer:
    """One tool, and where its values are, counted from the beginning of the list.

    ``description`` is an empty span, behind the tool's name, where it has none; ``parameters`` where those are left
    out. ``fixed`` says why the entry must stay as it is, if it must; ``size`` are the entry's bytes as it was sent.
    """

    tool: Tool
    description: Span
    parameters: Span
    fixed: str = ""
    size: int = 0

    def edits(self, short: Slim) -> list[Edit]:
        """What makes a short form of it, counted from the beginning of the list."""
        said = dumped(short.description)
        if self.description.start == self.description.end:
            said = b',"description":' + said
        wanted = [(self.description, said)]
        if self.parameters.start < self.parameters.end:
            wanted.append((self.parameters, short.parameters))
        return wanted


@dataclass(frozen=True, slots=True, eq=False)
class Offers:
    """A list of tools; ``digest`` is its key, the same however it is written.

    ``deferring`` says how the client itself loads tools late, if it does.
    """

    digest: str
    tools: tuple[Offer, ...]
    deferring: str = ""

    def edits(self, shorts: Mapping[str, Slim]) -> tuple[Edit, ...]:
        """What puts these short forms, by the tools' names, in place of the whole ones; fixed ones stay."""
        wanted = [(one, shorts[one.tool.name]) for one in self.tools if one.tool.name in shorts and not one.fixed]
        return tuple(edit for one, short in wanted for edit in one.edits(short))


class Listed(NamedTuple):
    """Where in a body the list of tools begins, and what it offers."""

    start: int
    offers: Offers
