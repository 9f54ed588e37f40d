"""Carries out what was planned: stubs made from the pages' own content, and the event that repeats it."""

from collections.abc import Callable, Collection

from pager.log.events import Repacked
from pager.paging.page import Page, stub_limit
from pager.paging.page_in import NAME, name_for
from pager.paging.page_in_answers import brought_by
from pager.paging.page_table import Table
from pager.paging.planner import Plan
from pager.paging.stub import Subject, make_stub
from pager.pricing.tokens import O200K, Counter
from pager.wire.dialect import Dialect


class Stubs:
    """Makes stubs, and counts their tokens."""

    def __init__(self) -> None:
        self._counter = Counter()

    def make(self, dialect: Dialect, table: Table, page: Page, raw: bytes, tool: str) -> str:
        """The stub of a page in the item with these bytes; ``tool`` is the one by which the model gets it back."""
        text, size = text_at(dialect, raw, page.key) or "", page.size
        came = brought_by(text) if page.origins else None
        if came is not None and came.content is not None:
            text, size = came.content, len(came.content.encode("utf-8", "surrogatepass"))
        (tool_used, about), lines = table.named(page), text.count("\n") + 1
        subject = Subject("argument" if page.kind == "argument" else "result", tool_used, about, size, lines, text)
        return make_stub(subject, page.handle, self._count, stub_limit(page.tokens), getter=tool)

    def _count(self, text: str) -> int:
        return self._counter.count(text, O200K)


def carry_out(
    plan: Plan,
    table: Table,
    where: tuple[int, int, int],
    names: Collection[str] | None,
    stub: Callable[[Page, str], str],
    policy: str = "",
) -> Repacked:
    """Let the pages of a plan go, as the event says that is to be logged.

    ``where`` is the branch, call and attempt; ``names`` are those of the client's tools, None where none can be added;
    ``stub`` gives the stub of a page, by the name of the tool that brings it back.
    """
    tool = table.tool
    if names is not None and (not tool or tool in names):
        tool = name_for(names)
    repacked = Repacked(
        *where,
        cause=plan.cause,
        reason=plan.reason,
        policy=policy,
        tool="" if tool == table.tool else tool,
        warm=plan.warm,
        pages=[table.evicted(page, stub(page, tool or NAME)) for page in plan.pages],
        saved=plan.saved,
        rewritten=plan.rewritten,
        price=plan.price,
    )
    table.apply(repacked)
    return repacked


def text_at(dialect: Dialect, raw: bytes, key: str) -> str | None:
    """The text of the page with this key in an item; None if there is none."""
    return next((site.text for site in dialect.sites(raw) if site.key == key), None)
