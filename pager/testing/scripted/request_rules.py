"""The rules by which real providers refuse a prompt, with their error messages.

Only what providers are known to refuse counts: calls and results that are not paired as each format wants it, what a
role can't say, thinking that was changed, too many cache marks. What is merely unusual passes, as do types of blocks
that are not known here, since providers add new ones all the time.
"""

from collections.abc import Mapping
from typing import Any

from pager.wire.dialects import scripted
from pager.wire.scripted import repeated


def problems(dialect_name: str, request: Mapping[str, Any]) -> list[str]:
    """Why the provider would answer this request with a 400, in the order of the prompt; empty if it would not."""
    provider = scripted(dialect_name)
    found = list(provider.problems(request))
    if twice := repeated(name for name, _ in provider.tools(request)):
        found.append(f"tools: Tool names must be unique. Found more than once: {', '.join(twice)}.")
    return found
