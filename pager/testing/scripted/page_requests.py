"""Reads a prompt as a model does that wants pages back: which tool brings them, and which stubs there are."""

from collections.abc import Iterator, Mapping
from typing import Any

from pager.paging.pages.stub import HANDLE
from pager.testing.scripted.script import PageIn
from pager.wire.dialects import names, scripted
from pager.wire.scripted import Call, Say

PARAMETER = "pages"


def asking(answer: PageIn, request: Mapping[str, Any]) -> Say | None:
    """What the model says to get pages back; None where it can't ask or there is nothing to ask for."""
    name, found = getter(request), handles(request)
    forbidden = request.get("tool_choice") in ("none", {"type": "none"}) and not answer.stubborn
    if name is None or not found or forbidden:
        return None
    # Pages that were asked for before are asked for again only if there are no others.
    left = [handle for handle in found if handle not in handles(request, name)] or found
    wanted = (left if answer.which == "oldest" else left[::-1])[: answer.pages]
    slices = {"lines": answer.lines, "search": answer.search}
    arguments = {PARAMETER: wanted, **{key: value for key, value in slices.items() if value}}
    return Say(answer.text, [*answer.ahead, Call(name, arguments), *answer.beside], answer.reasoning)


def getter(request: Mapping[str, Any]) -> str | None:
    """The name of the tool that brings pages back, if the prompt offers one: the first list it takes is of pages.

    Of several the last one, since the client's own tools come first.
    """
    offered = (tool for dialect in names() for tool in scripted(dialect).tools(request))  # each finds only its own
    found = [name for name, schema in offered if _first_list(schema) == PARAMETER]
    return found[-1] if found else None


def handles(request: Mapping[str, Any], only: str = "") -> list[str]:
    """The handles in results and past calls of tools, each once; ``only`` those in calls of one tool."""
    used = _tools_used(request)
    texts = (text for name, value in used if not only or name == only for text in _texts(value))
    return list(dict.fromkeys(handle for text in texts for handle in HANDLE.findall(text)))


def rounds(request: Mapping[str, Any]) -> int:
    """How many past calls in this prompt ask for pages."""
    name = getter(request)
    return sum(called == name for called, _ in _tools_used(request))


def _tools_used(request: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Past calls as the tool's name and its arguments, and results without a name, in any wire format."""
    return (used for name in names() for used in scripted(name).used(request))


def _first_list(schema: Mapping[str, Any]) -> str | None:
    properties = schema.get("properties") or {}
    return next(
        (name for name, one in properties.items() if isinstance(one, Mapping) and one.get("type") == "array"), None
    )


def _texts(value: object) -> Iterator[str]:
    """All texts inside a JSON value."""
    match value:
        case str():
            yield value
        case Mapping():
            for inner in value.values():
                yield from _texts(inner)
        case list():
            for inner in value:
                yield from _texts(inner)
