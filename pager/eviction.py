"""Makes the stub that stands for a page from the page's own content."""

from pager.dialect import Dialect
from pager.page import Page, stub_limit
from pager.stubs import Subject, make_stub
from pager.table import Table
from pager.tokens import O200K, Counter


class Stubs:
    """Makes stubs, and counts their tokens."""

    def __init__(self) -> None:
        self._counter = Counter()

    def make(self, dialect: Dialect, table: Table, page: Page, raw: bytes, tool: str) -> str:
        """The stub of a page in the item with these bytes; ``tool`` is the one by which the model gets it back."""
        text = text_at(dialect, raw, page.key) or ""
        about, lines = table.about(page), text.count("\n") + 1
        subject = Subject("argument" if page.kind == "argument" else "result", page.tool, about, page.size, lines, text)
        return make_stub(subject, page.handle, self._count, stub_limit(page.tokens), getter=tool)

    def _count(self, text: str) -> int:
        return self._counter.count(text, O200K)


def text_at(dialect: Dialect, raw: bytes, key: str) -> str | None:
    """The text of the page with this key in an item; None if there is none."""
    return next((site.text for site in dialect.sites(raw) if site.key == key), None)
