"""The short forms of a tool: slim, with parameters but without their descriptions, and deferred, without both.

A schema has two kinds of keywords: those that say which arguments are allowed, and those that explain them. Only the
latter are dropped, and only where they are keywords: a parameter may well be called "description". So a slim schema
allows exactly what the whole one does, and a model that guesses well calls the tool without ever asking for the rest.
Definitions that no reference leads to allow nothing either; some servers put all of theirs into each tool.

Strict schemas are compiled by the provider into a grammar, from a documented subset of JSON Schema. Descriptions and
titles are allowed in it and no part of the grammar. What else there is may decide whether and how the schema is taken
(``default`` is outside of OpenAI's subset), so all of that is kept. A strict tool is never deferred, as every object in
a strict schema must name its properties.

What can't be kept exactly is not understood, and such a tool stays whole.
"""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any
from urllib.parse import unquote

import orjson

from pager.errors import NotUnderstood
from pager.text.outline import clip, plain

DEEPEST = 64
"""Levels of a schema; a deeper one is not understood."""

LONGEST_SLIM = 200
"""Characters of a slim tool's first sentence."""

LONGEST_DEFERRED = 60
"""Characters of a deferred tool's one line."""

LEAST_SHARE = 0.1
"""What a shorter form must save at least, as a share of the whole one's tokens."""

LEAST_TOKENS = 10
"""What a shorter form must save at least: about what its handle costs."""

PROSE = frozenset({"$comment", "$schema", "default", "description", "examples", "title"})
"""Keywords that say nothing of which arguments are allowed."""

STRICT_PROSE = PROSE - {"default", "examples"}
"""Those of them that a provider makes nothing of when it enforces a schema."""

_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"})
_NESTED = frozenset({
    "additionalItems", "additionalProperties", "allOf", "anyOf", "contains", "contentSchema", "else", "if", "items",
    "not", "oneOf", "prefixItems", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
})  # fmt: skip

# By which a schema may be referred to otherwise than by its path from the root.
_OTHER_NAMES = frozenset({
    "$anchor", "$dynamicAnchor", "$dynamicRef", "$id", "$recursiveAnchor", "$recursiveRef", "id",
})  # fmt: skip
# What one draft knows and another does not, or reads otherwise: beside these "$schema" is more than prose.
_OF_SOME_DRAFTS = _OTHER_NAMES | {
    "additionalItems", "contains", "dependencies", "dependentRequired", "dependentSchemas", "else", "if",
    "maxContains", "minContains", "prefixItems", "then", "unevaluatedItems", "unevaluatedProperties",
}  # fmt: skip
_DEFINITIONS = frozenset({"$defs", "definitions"})
_LATEST = "https://json-schema.org/draft/2020-12/schema"
_ALIKE = frozenset({
    "http://json-schema.org/draft-06/schema", "http://json-schema.org/draft-07/schema",
    "https://json-schema.org/draft/2019-09/schema",
})  # fmt: skip
_LARGEST = float(1 << 63)  # larger integers may have been rounded when they were decoded

_READ = 2_000  # characters of a description in which its first sentence is looked for
_NOTE = re.compile(r"\s*\[pg_[0-9a-f]{8,32}\]\s*\Z")
_SENTENCE_END = re.compile(r"[.!?](?=[ '\")\]]*(?: [^a-z]|\Z))|[\u3002\uff01\uff1f]")
_ABBREVIATED = re.compile(r"(?:\b(?:e\.g|i\.e|etc|vs|cf|incl|approx|no|resp|\w)\.)\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as a client offers it: ``parameters`` is its decoded schema, ``raw`` all of it as it was sent.

    ``strict`` is True where the provider enforces the schema, also where it does so unless told otherwise.
    """

    name: str
    description: str
    parameters: Any
    strict: bool
    raw: bytes


@dataclass(frozen=True, slots=True)
class Slim:
    """What is sent for a tool: a short description with the handle of the whole, and a schema as compact JSON."""

    name: str
    description: str
    parameters: bytes


@dataclass(frozen=True, slots=True)
class Forms:
    """The tokens of a tool, and its short forms; None for one that it must not take, slim with the reason.

    Tokens are those of name, description and parameters, as compact JSON.
    """

    tokens: int
    slim: Slim | None = None
    slim_tokens: int = 0
    not_slim: str = ""
    deferred: Slim | None = None
    deferred_tokens: int = 0


def forms(tool: Tool, handle: str, count: Callable[[str], int]) -> Forms:
    """The forms of a tool; ``count`` counts tokens, ``handle`` is that of ``tool.raw``."""
    try:
        whole = count(_text(tool.name, tool.description, dumped(tool.parameters)))
        slimmed = slim(tool, handle)
    except NotUnderstood as error:
        reason = f"its schema is not understood: {error}"
        return Forms(count(tool.raw.decode("utf-8", "replace")), not_slim=reason)
    tokens, reason = _weighed(slimmed, whole, count)
    found = Forms(whole, None if reason else slimmed, tokens, reason)
    if tool.strict:
        return found
    short = deferred(tool, handle)
    tokens, reason = _weighed(short, whole, count)
    return found if reason else replace(found, deferred=short, deferred_tokens=tokens)


def _weighed(form: Slim, whole: int, count: Callable[[str], int]) -> tuple[int, str]:
    """The tokens of a form, and why it is not worth it; empty if it is."""
    tokens = count(_text(form.name, form.description, form.parameters))
    enough = whole - tokens >= max(LEAST_TOKENS, LEAST_SHARE * whole)
    return tokens, "" if enough else f"it would save {max(whole - tokens, 0)} of {whole} tokens"


def _text(name: str, description: str, parameters: bytes) -> str:
    return (b'{"name":%b,"description":%b,"parameters":%b}' % (dumped(name), dumped(description), parameters)).decode()


def slim(tool: Tool, handle: str) -> Slim:
    """The tool with its first sentence and with parameters without prose; raises ``NotUnderstood``."""
    sentence = first_sentence(tool.description, LONGEST_SLIM)
    schema = dumped(without_prose(tool.parameters, strict=tool.strict))
    return Slim(tool.name, f"{sentence} [{handle}]".lstrip(), schema)


def deferred(tool: Tool, handle: str) -> Slim:
    """The tool with one line, and as parameters any object; not for strict tools."""
    sentence = first_sentence(tool.description, LONGEST_DEFERRED)
    return Slim(tool.name, f"{sentence} [{handle}]".lstrip(), b'{"type":"object"}')


# Descriptions


def first_sentence(description: str, longest: int) -> str:
    """The first sentence of a text, in one line, without a handle."""
    first, *others = _NOTE.sub("", description[:_READ]).strip().split("\n")
    wrapped = takewhile(lambda line: line.strip()[:1].islower(), others)  # others begin like a new paragraph
    text = plain(" ".join([first, *wrapped]))
    ends = (found.end() for found in _SENTENCE_END.finditer(text))
    end = next((end for end in ends if not _ABBREVIATED.search(text, max(0, end - 8), end)), len(text))
    return clip(text[:end], longest)


# Schemas


def without_prose(parameters: Any, *, strict: bool = False) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    """The schema without prose, everything else exactly as it was; raises ``NotUnderstood``."""
    if not isinstance(parameters, dict):
        raise NotUnderstood("it is no object")
    prose = STRICT_PROSE if strict else PROSE
    _must_be_simple(parameters, prose, DEEPEST)
    if not _is_read_alike_without_its_draft(parameters, prose):
        prose -= {"$schema"}
    stripped: dict[str, Any] = _stripped(parameters, prose)
    return stripped if strict else _without_unused_definitions(stripped)


def _must_be_simple(value: Any, prose: frozenset[str], levels: int) -> None:  # noqa: ANN401 - any JSON
    """Raises unless all of it can be walked and written again, and no reference leads into what is dropped."""
    if isinstance(value, float) and not abs(value) < _LARGEST:
        raise NotUnderstood(f"the number {value} may have been rounded" if math.isfinite(value) else "a number is none")
    if not isinstance(value, dict | list):
        return
    if not levels:
        raise NotUnderstood(f"it is deeper than {DEEPEST} levels")
    if isinstance(value, dict):
        for name in ("$ref", "$dynamicRef"):
            if isinstance(target := value.get(name), str) and _leads_into(target, prose):
                raise NotUnderstood(f"a reference leads into prose: {clip(target, 80)}")
    for part in value.values() if isinstance(value, dict) else value:
        _must_be_simple(part, prose, levels - 1)


def _leads_into(reference: str, prose: frozenset[str]) -> bool:
    """Whether a reference's path passes through a keyword that is dropped."""
    steps = iter(_steps(reference)[1:])
    for step in steps:
        if step in prose:
            return True
        if step in _MAPS:
            next(steps, None)  # a name, whatever it is
        elif step not in _NESTED and not step.isdigit():
            return False  # what lies in an unknown keyword is kept as it is
    return False


def _steps(reference: str) -> list[str]:
    """The path in a reference, from the root, which has an empty name."""
    path = unquote(reference.partition("#")[2]).split("/")
    return [step.replace("~1", "/").replace("~0", "~") for step in path]


def _is_read_alike_without_its_draft(schema: dict[str, Any], prose: frozenset[str]) -> bool:
    """Whether the schema means the same to a reader who takes it for the latest draft."""
    draft = schema.get("$schema", _LATEST)
    known = draft.removesuffix("#") if isinstance(draft, str) else ""
    if known == _LATEST:
        return True
    return known in _ALIKE and not any(
        ("$ref" in part and part.keys() - prose - {"$ref", "$defs", "definitions"})  # which some drafts ignore there
        or isinstance(part.get("items"), list)
        or not _OF_SOME_DRAFTS.isdisjoint(part)
        for part in _parts(schema)
    )


def _parts(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A schema and all schemas in it."""
    yield schema
    for keyword, value in schema.items():
        below = value.values() if keyword in _MAPS and isinstance(value, dict) else (value,) * (keyword in _NESTED)
        for each in below:
            for part in each if isinstance(each, list) else [each]:
                if isinstance(part, dict):
                    yield from _parts(part)


def _stripped(schema: Any, prose: frozenset[str]) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, dict):
        raise NotUnderstood("a part of it is neither an object nor true or false")
    kept = {}
    for keyword, value in schema.items():
        if keyword in prose and (keyword == "default" or isinstance(value, list if keyword == "examples" else str)):
            continue  # where it is not what the keyword asks for, its author meant something else
        if keyword in _NESTED:
            kept[keyword] = (
                [_stripped(each, prose) for each in value] if isinstance(value, list) else _stripped(value, prose)
            )
        elif keyword not in _MAPS:
            kept[keyword] = value
        elif isinstance(value, dict):
            lists = keyword == "dependencies"  # which may list names where others have schemas
            kept[keyword] = {
                name: each if lists and isinstance(each, list) else _stripped(each, prose)
                for name, each in value.items()
            }
        else:
            raise NotUnderstood(f"{keyword} is no object")
    return kept


def _without_unused_definitions(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without definitions that can't be reached; with all if they may be referred to otherwise than by path.

    Only those of the root are looked at: nobody else's are shared.
    """
    if _DEFINITIONS.isdisjoint(schema) or any(not _OTHER_NAMES.isdisjoint(part) for part in _parts(schema)):
        return schema
    used = _used_definitions(schema)
    kept = {
        keyword: {name: each for name, each in value.items() if (keyword, name) in used}
        for keyword, value in schema.items()
        if keyword in _DEFINITIONS
    }
    return {keyword: kept.get(keyword, value) for keyword, value in schema.items() if kept.get(keyword) != {}}


def _used_definitions(schema: dict[str, Any]) -> set[tuple[str, str]]:
    """The definitions that references lead to, from outside of them and from one to the next."""
    used: set[tuple[str, str]] = set()
    found = list(_references({keyword: value for keyword, value in schema.items() if keyword not in _DEFINITIONS}))
    while found:
        _, keyword, name, *_ = (*_steps(found.pop()), "", "", "")
        if (keyword, name) not in used and name in schema.get(keyword, {}):
            used.add((keyword, name))
            found.extend(_references(schema[keyword][name]))
    return used


def _references(value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON
    """All that looks like a reference, wherever it is."""
    if isinstance(value, dict) and isinstance(value.get("$ref"), str):
        yield value["$ref"]
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _references(part)


def dumped(value: Any) -> bytes:  # noqa: ANN401 - any JSON
    """The value as compact JSON; raises ``NotUnderstood``."""
    try:
        return orjson.dumps(value)
    except TypeError as error:  # half an emoji, or an integer of more than 64 bits
        raise NotUnderstood(str(error)) from error
