"""Evicts the oldest tool results of a long prompt if that frees enough: the rule of Anthropic's context editing."""

from collections.abc import Sequence
from dataclasses import dataclass

from pager.errors import PolicyError
from pager.paging.policy import Decision, View


@dataclass(frozen=True, slots=True)
class ClearOldest:
    """Above ``trigger`` tokens, evicts all results but the last ``keep``, if that frees ``clear_at_least`` tokens.

    Follows the strategy ``clear_tool_uses_20250919`` as documented: it acts once the prompt exceeds the trigger, takes
    the oldest results first and keeps the most recent, does nothing at all if it can't clear enough, and never touches
    the results of ``exclude_tools``. It differs in this:

    - ``clear_at_least`` is 20,000 where Anthropic sets no minimum; 0 turns it off.
    - The trigger is a number of tokens, never of tool uses, and the arguments of calls stay (no ``clear_tool_inputs``).
    - Pinned pages stay. Results too small to be pages are neither counted nor cleared.
    - What was cleared stays cleared and can be paged in.

    Where the documentation is silent: what is cleared counts net of stubs, the trigger looks at the prompt with earlier
    stubs in place, and results of excluded tools or already evicted count among the last ``keep``.
    """

    trigger: int = 100_000
    keep: int = 3
    clear_at_least: int = 20_000
    exclude_tools: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("trigger", "keep", "clear_at_least"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:  # a bool is an int, but no number of anything
                raise PolicyError(f"policy 'clear_oldest': {name} must be a whole number of at least 0, not {value!r}")
        names = self.exclude_tools  # a bare string is a sequence of strings too, but of its letters
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            raise PolicyError(f"policy 'clear_oldest': exclude_tools must be a list of tools' names, not {names!r}")

    def choose(self, view: View) -> Decision:
        """All or nothing, in the order of the prompt."""
        if view.tokens <= self.trigger:
            return Decision(reason=f"the prompt of {view.tokens} tokens is not above the trigger of {self.trigger}")
        results = sorted((page for page in view.pages if page.kind == "result"), key=lambda page: page.position)
        older = results[: max(0, len(results) - self.keep)]
        gone = [page for page in older if page.tool not in self.exclude_tools and page.evictable]
        freed = sum(page.tokens - page.stub_tokens for page in gone)
        clearing = f"clearing {len(gone)} of {len(view.pages)} pages"
        found = f"{view.tokens} tokens are above the trigger of {self.trigger}; {clearing}"
        if freed < max(1, self.clear_at_least):
            return Decision(reason=f"{found} would free {freed}, fewer than {max(1, self.clear_at_least)}")
        return Decision(tuple(page.handle for page in gone), gone[0].position, f"{found} frees {freed}")
