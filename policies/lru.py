"""Evicts the least recently used pages of a prompt whose pages exceed a capacity."""

from dataclasses import dataclass

from pager.errors import PolicyError
from pager.paging.policy import Decision, PageView, View


@dataclass(frozen=True, slots=True)
class Lru:
    """Keeps the tokens of resident pages within ``capacity``; stubs and what is no page do not count."""

    capacity: int = 60_000

    def __post_init__(self) -> None:
        if type(self.capacity) is not int or self.capacity < 0:  # a bool is an int, but no number of anything
            raise PolicyError(f"policy 'lru': capacity must be a whole number of at least 0, not {self.capacity!r}")

    def choose(self, view: View) -> Decision:
        """The longest unused pages, until the others fit."""
        resident = left = sum(page.tokens for page in view.pages if page.resident)
        gone: list[PageView] = []
        for page in sorted((page for page in view.pages if page.evictable), key=_longest_unused):
            if left <= self.capacity:
                break
            gone.append(page)
            left -= page.tokens
        return Decision(
            evict=tuple(page.handle for page in gone),
            cut=min((page.position for page in gone), default=None),
            reason=f"{resident} tokens in pages for a capacity of {self.capacity};"
            f" {len(gone)} of {len(view.pages)} pages go, {left} tokens stay",
        )


def _longest_unused(page: PageView) -> tuple[int, int, bool, int]:
    """Longest unused, then oldest; of pages that came together superseded ones, then the order of the prompt."""
    return -page.idle, -page.age, not page.superseded, page.position
