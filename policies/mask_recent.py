"""Evicts all tool results but the most recent ones."""

from dataclasses import dataclass

from pager.errors import PolicyError
from pager.paging.policy import Decision, View


@dataclass(frozen=True, slots=True)
class MaskRecent:
    """Keeps the last ``keep`` results of the prompt and evicts the others; pages of other kinds are left.

    The last are counted by their place, whether resident or not: a result that is evicted already makes no room for an
    older one.
    """

    keep: int = 10

    def __post_init__(self) -> None:
        if type(self.keep) is not int or self.keep < 0:  # a bool is an int, but no number of anything
            raise PolicyError(f"policy 'mask_recent': keep must be a whole number of at least 0, not {self.keep!r}")

    def choose(self, view: View) -> Decision:
        """All results before the last ``keep``, in the order of the prompt."""
        results = sorted((page for page in view.pages if page.kind == "result"), key=lambda page: page.position)
        older = results[: max(0, len(results) - self.keep)]
        gone = [page for page in older if page.evictable]
        return Decision(
            evict=tuple(page.handle for page in gone),
            cut=gone[0].position if gone else None,
            reason=f"{len(gone)} of {len(results)} results stand before the last {self.keep} and can go",
        )
