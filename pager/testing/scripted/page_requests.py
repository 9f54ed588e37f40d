"""Reads a prompt as a model does that wants pages back: which tool brings them, and which stubs there are."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pager.paging.stub import HANDLE
from pager.testing.scripted.script import Call, PageIn, Say

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
    names = [name for name, schema in _functions(request) if _first_list(schema) == PARAMETER]
    return names[-1] if names else None


def handles(request: Mapping[str, Any], only: str = "") -> list[str]:
    """The handles in results and past calls of tools, each once; ``only`` those in calls of one tool."""
    used = _tools_used(request)
    texts = (text for name, value in used if not only or name == only for text in _texts(value))
    return list(dict.fromkeys(handle for text in texts for handle in HANDLE.findall(text)))


def rounds(request: Mapping[str, Any]) -> int:
    """How many past calls in this prompt ask for pages."""
    name = getter(request)
    return sum(called == name for called, _ in _tools_used(request))


def _functions(request: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The name and parameters of every function offered."""
    for entry in offered(request):
        function = entry.get("function") or entry
        schema = function.get("parameters") or function.get("input_schema")
        if isinstance(schema, Mapping) and function.get("name"):
            yield str(function["name"]), schema


def offered(request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The tools of a request, wherever it keeps them."""
    yield from request.get("tools") or []
    for item in _items(request):
        if item.get("type") == "additional_tools":
            yield from item.get("tools") or []


def _first_list(schema: Mapping[str, Any]) -> str | None:
    properties = schema.get("properties") or {}
    return next(
        (name for name, one in properties.items() if isinstance(one, Mapping) and one.get("type") == "array"), None
    )


def _tools_used(request: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Past calls as the tool's name and its arguments; results without a name."""
    for item in _items(request):
        for part in _parts(item):
            match part:
                case {"function": {"name": str(name), "arguments": arguments}}:
                    yield name, _decoded(arguments)
                case {"type": "function_call", "name": str(name), "arguments": arguments}:
                    yield name, _decoded(arguments)
                case {"type": "tool_use" | "custom_tool_call", "name": str(name), "input": arguments}:
                    yield name, arguments
                case {"role": "tool", "content": result} | {"type": "tool_result", "content": result}:
                    yield "", result
                case {"type": "function_call_output" | "custom_tool_call_output", "output": result}:
                    yield "", result


def _items(request: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    given = request.get("messages") or request.get("input") or []
    return [item for item in given if isinstance(item, Mapping)] if isinstance(given, list) else []


def _parts(item: Mapping[str, Any]) -> Iterator[object]:
    """The item itself, and the blocks and calls in it."""
    yield item
    for inside in (item.get("content"), item.get("tool_calls")):
        if isinstance(inside, list):
            yield from inside


def _decoded(arguments: object) -> object:
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return arguments


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
