"""Evicts every page that is old enough and large enough: the research prototype's rule."""

from dataclasses import dataclass

from pager.errors import PolicyError
from pager.paging.policy import Decision, PageView, View


@dataclass(frozen=True, slots=True)
class FifoAge:
    """Evicts pages that came more than ``age`` calls ago and have more than ``size`` bytes."""

    age: int = 4
    size: int = 500

    def __post_init__(self) -> None:
        _check("age", self.age)
        _check("size", self.size)

    def choose(self, view: View) -> Decision:
        """All pages over both limits, in the order of the prompt."""
        gone = sorted(filter(self._goes, view.pages), key=lambda page: page.position)
        return Decision(
            evict=tuple(page.handle for page in gone),
            cut=gone[0].position if gone else None,
            reason=f"{len(gone)} of {len(view.pages)} pages can go at over {self.age} calls and {self.size} bytes",
        )

    def _goes(self, page: PageView) -> bool:
        return page.age > self.age and page.size > self.size and page.evictable


def _check(name: str, value: object) -> None:
    if type(value) is not int or value < 0:  # a bool is an int, but no number of anything
        raise PolicyError(f"policy 'fifo_age': {name} must be a whole number of at least 0, not {value!r}")
