"""Whether an answer needs an evicted page, found from its prompt alone.

The model of this benchmark is far too small to ask for a page by itself. So that evicting what is needed later still
costs what it costs, its server asks in its place, exactly where the script says that an older result is quoted.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.real_model.script import NEEDS, TOOLS, Message

_NEEDS = re.compile(rf"(?P<script>\w+)-\d+{NEEDS}(?P<step>\d+)")
_STUB = re.compile(r"\[(pg_[0-9a-f]{8,32})\b")


@dataclass(frozen=True, slots=True)
class NeededPage:
    """A page that has to be asked for, and the name of the tool that brings it."""

    tool: str
    handle: str


def wanted(messages: Sequence[Message], offered: Sequence[Mapping[str, Any]]) -> NeededPage | None:
    """The page that the answer to this prompt quotes, if only its stub is there and a tool can bring it."""
    needs = _NEEDS.fullmatch(str(messages[-1].get("tool_call_id", "")))
    names = [tool["function"]["name"] for tool in offered]
    added = next((name for name in names if name not in TOOLS), "")
    if needs is None or not added:
        return None
    stub = _STUB.match(_result(messages, f"{needs['script']}-{needs['step']}"))
    if stub is None or stub[1] in _arguments(messages, added):
        return None
    return NeededPage(added, stub[1])


def _result(messages: Sequence[Message], step: str) -> str:
    """A step's result as it stands in the prompt; what the step itself needs may follow its name in the id."""
    results = (message for message in messages if message["role"] == "tool")
    found = (str(message["content"]) for message in results if message["tool_call_id"].split(NEEDS)[0] == step)
    return next(found, "")


def _arguments(messages: Sequence[Message], tool: str) -> str:
    """What the tool was called with so far: the pages named there stand in the prompt."""
    calls = (call["function"] for message in messages for call in message.get("tool_calls") or ())
    return " ".join(call["arguments"] for call in calls if call["name"] == tool)
