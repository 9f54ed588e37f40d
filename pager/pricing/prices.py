"""What tokens cost, in units of one uncached input token, and what paging itself adds to a prompt."""

from dataclasses import dataclass

ASKING = 40
"""Tokens in which a model asks for a page."""

TOOL = 150
"""Tokens of the tool that brings pages back."""


@dataclass(frozen=True, slots=True)
class Prices:
    """What tokens cost, in units of one uncached input token, and how long a cached prefix lives.

    ``write_long`` is the price of a write that lives an hour, ``write`` again where there is none. A prompt of more
    than ``step_tokens`` costs ``step_factor`` times as much for all of its tokens, and ``step_output`` times for those
    of its answer; ``step_tokens`` is 0 where prices do not depend on the prompt's length.
    """

    read: float = 0.1
    write: float = 1.25
    output: float = 5.0
    ttl_seconds: float = 300.0
    write_long: float = 2.0
    step_tokens: int = 0
    step_factor: float = 1.0
    step_output: float = 1.0

    def factors(self, tokens: int) -> tuple[float, float]:
        """By what the prices of the tokens of a prompt of this length are multiplied, and those of its answer."""
        if 0 < self.step_tokens < tokens:
            return self.step_factor, self.step_output
        return 1.0, 1.0
