"""What each answer of a session needs to see: what it repeats and only pages had shown.

An answer repeats a sign: a line of some length, or a word that nobody writes by chance, such as a path or an id. As
long as a sign is anywhere else in the prompt, nothing is needed. Else one of the pages that show it must be there,
and if none is, a model would ask for the newest of them. Whether it is somewhere is looked up in the texts themselves,
since a path may be a part of a longer one.

Nothing here depends on what is evicted; a session is read once for all policies.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pager.paging.pages.page import contents
from pager.paging.pages.page_table import common_length
from pager.request_values import Kind
from pager.text.distinctive import distinctive
from pager.text.references import said
from pager.wire.dialect import Dialect


class Need(NamedTuple):
    """Signs that an answer repeats, the pages that show them, and the newest of these, which is asked for."""

    signs: tuple[str, ...]
    shown: frozenset[str]
    asked: str


@dataclass(frozen=True, slots=True)
class ShownText:
    """A text in the prompt: a page with its handle, or, without one, what always stays."""

    text: str
    handle: str = ""


def shown_in(dialect: Dialect, raw: bytes) -> Iterator[ShownText]:
    """The texts of an item: its pages, and all others."""
    message, page_spans = dialect.decode(raw), dialect.page_spans(raw)
    pages = {page.key: page.handle for page in contents(message, page_spans).pages}
    split = {page_span.call_id for page_span in page_spans}
    for block in message.blocks:
        if not (block.kind in (Kind.CALL, Kind.RESULT) and block.call_id in split):
            yield ShownText(said(block.text) if block.kind is Kind.CALL else block.text)
    for page_span in page_spans:
        yield ShownText(page_span.text, pages.get(page_span.key, ""))


@dataclass(slots=True)
class _Looked:
    """Where a sign was looked for so far: whether it is in what always stays, and in which pages."""

    plain: bool = False
    plains: int = 0
    pages: int = 0
    shown: dict[str, None] = field(default_factory=dict)


class Needs:
    """Reads the prompts of a session one after the other; each costs work for what is new in it."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._items: dict[bytes, list[tuple[ShownText, set[str]]]] = {}
        self._prompt: list[bytes] = []
        self._clear()

    def _clear(self) -> None:
        self._newest: dict[str, str] = {}
        self._signs: set[str] = set()
        self._pages: list[ShownText] = []
        self._plains: list[str] = []
        self._looked: dict[str, _Looked] = {}

    def of(self, prompt: Sequence[bytes], answer: str) -> list[Need]:
        """What this answer to this prompt needs."""
        self._go_to(prompt)
        grouped: dict[tuple[frozenset[str], str], list[str]] = {}
        for sign in sorted(distinctive(answer)):
            asked = self._newest.get(sign)
            if asked is None or sign in self._signs:
                continue
            looked = self._look(sign)
            if not looked.plain:
                grouped.setdefault((frozenset(looked.shown), asked), []).append(sign)
        return [Need(tuple(signs), shown, asked) for (shown, asked), signs in grouped.items()]

    def _go_to(self, prompt: Sequence[bytes]) -> None:
        """Take what is new; where the prompt was cut, all is taken anew."""
        kept = common_length(self._prompt, prompt)
        if kept < len(self._prompt):
            self._clear()
            kept = 0
        self._prompt = list(prompt)
        for raw in prompt[kept:]:
            for shown, signs in self._item(raw):
                if shown.handle:
                    self._newest.update(dict.fromkeys(signs, shown.handle))
                    self._pages.append(shown)
                else:
                    self._signs |= signs
                    self._plains.append(shown.text)

    def _item(self, raw: bytes) -> list[tuple[ShownText, set[str]]]:
        found = self._items.get(raw)
        if found is None:
            found = [(shown, distinctive(shown.text)) for shown in shown_in(self._dialect, raw)]
            self._items[raw] = found
        return found

    def _look(self, sign: str) -> _Looked:
        """Look for a sign in what has come since it was last looked for."""
        looked = self._looked.setdefault(sign, _Looked())
        if not looked.plain:
            looked.plain = any(sign in text for text in self._plains[looked.plains :])
            looked.plains = len(self._plains)
        if not looked.plain:
            looked.shown.update((page.handle, None) for page in self._pages[looked.pages :] if sign in page.text)
            looked.pages = len(self._pages)
        return looked
