"""Evicts from a high mark of the window down to a low one, then waits until the high mark is passed again."""

from dataclasses import dataclass

from pager.errors import PolicyError
from pager.paging.policy import Decision, PageView, View


@dataclass(frozen=True, slots=True)
class Watermark:
    """Above ``high`` of the usable window, evicts until the prompt is below ``low`` of it; between them nothing goes.

    Usable is what the reserve for the answer leaves of the window. The two marks keep repacks rare: each makes room
    for many calls.
    """

    high: float = 0.75
    low: float = 0.5

    def __post_init__(self) -> None:
        if not _is_number(self.high) or not 0 < self.high <= 1:
            raise PolicyError(f"policy 'watermark': high must be a share above 0 and up to 1, not {self.high!r}")
        if not _is_number(self.low) or not 0 <= self.low < self.high:
            raise PolicyError(
                f"policy 'watermark': low must be a share from 0 to below high ({self.high}), not {self.low!r}"
            )

    def choose(self, view: View) -> Decision:
        """Nothing up to the high mark; past it the best victims, until the prompt is below the low mark."""
        usable = max(0, view.window - view.reserve)
        high, low = round(self.high * usable), round(self.low * usable)
        if view.tokens <= high:
            return Decision(reason=f"the prompt of {view.tokens} tokens is not above the high mark of {high}")
        gone, left = _down_to(low, view)
        return Decision(
            evict=tuple(page.handle for page in gone),
            cut=min((page.position for page in gone), default=None),
            reason=f"{view.tokens} tokens are above the high mark of {high}; {len(gone)} of {len(view.pages)} pages go,"
            f" {left} tokens stay for a low mark of {low}",
        )


def _down_to(low: int, view: View) -> tuple[list[PageView], int]:
    """The victims that bring the prompt below ``low``, or all there are, and the tokens that are left."""
    gone: list[PageView] = []
    left = view.tokens
    for page in sorted((page for page in view.pages if page.evictable), key=_best_victim):
        if left < low:
            break
        gone.append(page)
        left -= page.tokens - page.stub_tokens
    return gone, left


def _best_victim(page: PageView) -> tuple[bool, int, int, int]:
    """Superseded, then longest unused, then oldest, then the order of the prompt."""
    return not page.superseded, -page.idle, -page.age, page.position


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
