"""The ratio of the provider's tokens to our own count, in one branch.

Pages and prompts are counted by their bytes, ``BYTES_A_TOKEN`` to a token: near enough to choose by, and the same in
every process. What a policy is shown is in the provider's tokens, so that a limit of 60,000 means what the provider
counts as 60,000: at first by the tokenizer of the model's family, then by what the provider has reported of the branch.

Decisions must be the same after a crash, which may lose the latest answer, and in any of several processes, which may
see it late. So a report counts from the second call after its own, and only where it is off by more than ``TOLERANCE``:
a report that is lost then changes nothing, except in the rare case that it was the first with a measure.
"""

from dataclasses import dataclass, field, replace

from pager.pricing.catalog import family_of
from pager.pricing.tokens import BYTES_A_TOKEN

TOLERANCE = 0.1
"""How far a report must be off for the measure to change, as a share."""

STEP = 0.05
"""What a measure is a multiple of, so that reports that are nearly the same give the same one."""

LATER = 2
"""From how many calls after its own on a report counts."""

SMALLEST = 500
"""Tokens of the smallest prompt that is measured: fixed additions of the provider rule smaller ones."""

CREDIBLE = (0.3, 3.0)
"""What a measure lies between; beyond, a report has another cause: pictures, a prompt that the provider holds."""


@dataclass(slots=True)
class Yardstick:
    """The measure of a branch; ``fixed`` where our own count is the provider's, as in replays."""

    scale: float = 1.0
    fixed: bool = False
    model: str = ""
    _reports: list[tuple[int, float]] = field(default_factory=list)

    def begin(self, call: int, model: str) -> None:
        """A call goes to this model: take the measure that holds for it."""
        if self.fixed:
            return
        if model != self.model:
            self.model, self._reports = model, []
            self.scale = BYTES_A_TOKEN / family_of(model).bytes_a_token
        due = [scale for reported, scale in self._reports if reported + LATER <= call]
        if due and abs(due[-1] / self.scale - 1) > TOLERANCE:
            self.scale = round(due[-1] / STEP) * STEP

    def report(self, call: int, tokens: int, size: int) -> None:
        """Note the provider's count of a call's prompt: its tokens and its bytes."""
        scale = tokens * BYTES_A_TOKEN / size
        if tokens >= SMALLEST and CREDIBLE[0] <= scale <= CREDIBLE[1]:
            self._reports = [*self._reports[-LATER:], (call, scale)]

    def tokens(self, size: float) -> int:
        """The provider's tokens in these bytes, roughly."""
        return round(self.scale * size / BYTES_A_TOKEN)

    def size(self, tokens: float) -> int:
        """The bytes of these tokens of the provider's, roughly."""
        return round(tokens * BYTES_A_TOKEN / self.scale)

    def copy(self) -> "Yardstick":
        """The same for a branch that forks off."""
        return replace(self, _reports=list(self._reports))
