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
from dataclasses import dataclass
from typing import Any, NamedTuple
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
    """What stands for a tool: a short description with the handle of the whole, and a schema as compact JSON."""

    name: str
    description: str
    parameters: bytes


class Size(NamedTuple):
    """Of a tool's name, description and parameters, as compact JSON."""

    bytes: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Forms:
    """The forms in which a tool may be sent, and their sizes; a form that it must not take is None, with the reason."""

    whole_size: Size
    slim: Slim | None = None
    slim_size: Size | None = None
    not_slim: str = ""
    deferred: Slim | None = None
    deferred_size: Size | None = None
    not_deferred: str = ""


def forms(tool: Tool, handle: str, count: Callable[[str], int]) -> Forms:
    """All that a tool may be sent as; ``count`` counts tokens, ``handle`` is that of ``tool.raw``."""
    try:
        text = _text(tool.name, tool.description, dumped(tool.parameters))
        whole = Size(len(text), count(text.decode()))
        slimmed = slim(tool, handle)
    except NotUnderstood as found:
        reason = f"its schema is not understood: {found}"
        return Forms(
            Size(len(tool.raw), count(tool.raw.decode("utf-8", "replace"))), not_slim=reason, not_deferred=reason
        )
    slim_size, small = _weighed(slimmed, whole, count)
    if tool.strict:
        return Forms(whole, None if small else slimmed, slim_size, small, not_deferred="its schema is enforced")
    short = deferred(tool, handle)
    short_size, little = _weighed(short, whole, count)
    return Forms(
        whole, None if small else slimmed, slim_size, small, None if little else short, short_size, not_deferred=little
    )


def _weighed(form: Slim, whole: Size, count: Callable[[str], int]) -> tuple[Size, str]:
    """The size of a form, and why it is not worth it, if it is not."""
    text = _text(form.name, form.description, form.parameters)
    size = Size(len(text), count(text.decode()))
    saved = whole.tokens - size.tokens
    enough = saved >= max(LEAST_TOKENS, LEAST_SHARE * whole.tokens)
    return size, "" if enough else f"it would save {max(saved, 0)} of {whole.tokens} tokens"


def _text(name: str, description: str, parameters: bytes) -> bytes:
    return b'{"name":%b,"description":%b,"parameters":%b}' % (dumped(name), dumped(description), parameters)


def slim(tool: Tool, handle: str) -> Slim:
    """The tool with its first sentence and with parameters without prose; raises ``NotUnderstood``."""
    sentence = first_sentence(tool.description, LONGEST_SLIM)
    said = f"{sentence} [{handle}]".lstrip()
    return Slim(tool.name, said, dumped(without_prose(tool.parameters, strict=tool.strict)))


def deferred(tool: Tool, handle: str) -> Slim:
    """The tool with one line, and as parameters any object; not for strict tools."""
    sentence = first_sentence(tool.description, LONGEST_DEFERRED)
    return Slim(tool.name, f"{sentence} [{handle}]".lstrip(), b'{"type":"object"}')


# Descriptions


def first_sentence(description: str, longest: int) -> str:
    """The first sentence of a text, in one line, without a handle."""
    text = plain(_first_paragraph(_NOTE.sub("", description[:_READ])))
    ends = (found.end() for found in _SENTENCE_END.finditer(text))
    end = next((end for end in ends if not _ABBREVIATED.search(text, max(0, end - 8), end)), len(text))
    return clip(text[:end], longest)


def _first_paragraph(text: str) -> str:
    """The first line and those that continue it: a line that was only wrapped does not begin like a new one."""
    lines = text.strip().split("\n")
    taken = [lines[0]]
    for line in lines[1:]:
        if not line.strip()[:1].islower():
            break
        taken.append(line)
    return " ".join(taken)


# Schemas


def without_prose(parameters: Any, *, strict: bool = False) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    """The schema without prose, everything else exactly as it was; raises ``NotUnderstood``."""
    if not isinstance(parameters, dict):
        raise NotUnderstood("it is no object")
    prose = STRICT_PROSE if strict else PROSE
    _must_be_simple(parameters, prose, DEEPEST)
    if not _is_read_alike_without_its_draft(parameters, prose):
        prose -= {"$schema"}
    stripped = _stripped_object(parameters, prose)
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
    """Whether the schema means the same to one who takes it for the latest draft."""
    draft = schema.get("$schema", _LATEST)
    known = draft.removesuffix("#") if isinstance(draft, str) else ""
    return known == _LATEST or (known in _ALIKE and not any(_is_of_its_draft(part, prose) for part in _parts(schema)))


def _is_of_its_draft(schema: dict[str, Any], prose: frozenset[str]) -> bool:
    beside_reference = "$ref" in schema and bool(schema.keys() - prose - {"$ref", "$defs", "definitions"})
    return beside_reference or isinstance(schema.get("items"), list) or not _OF_SOME_DRAFTS.isdisjoint(schema)


def _parts(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A schema and all that it is made of."""
    yield schema
    for keyword, value in schema.items():
        below = (
            value.values() if keyword in _MAPS and isinstance(value, dict) else [value] if keyword in _NESTED else []
        )
        for each in below:
            for part in each if isinstance(each, list) else [each]:
                if isinstance(part, dict):
                    yield from _parts(part)


def _stripped_object(schema: dict[str, Any], prose: frozenset[str]) -> dict[str, Any]:
    return {
        keyword: _stripped_value(keyword, value, prose)
        for keyword, value in schema.items()
        if keyword not in prose or not _is_well_formed(keyword, value)
    }


def _is_well_formed(keyword: str, value: Any) -> bool:  # noqa: ANN401 - any JSON
    """Whether it is what the keyword asks for; if not, who wrote it meant something else."""
    return keyword == "default" or isinstance(value, list if keyword == "examples" else str)


def _stripped_value(keyword: str, value: Any, prose: frozenset[str]) -> Any:  # noqa: ANN401 - any JSON
    if keyword in _NESTED:
        return [_stripped(each, prose) for each in value] if isinstance(value, list) else _stripped(value, prose)
    if keyword not in _MAPS:
        return value
    if not isinstance(value, dict):
        raise NotUnderstood(f"{keyword} is no object")
    names_only = keyword == "dependencies"  # which may list names where others have schemas
    return {
        name: each if names_only and isinstance(each, list) else _stripped(each, prose) for name, each in value.items()
    }


def _stripped(schema: Any, prose: frozenset[str]) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, dict):
        raise NotUnderstood("a part of it is neither an object nor true or false")
    return _stripped_object(schema, prose)


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
    """All that looks like a reference, wherever it stands."""
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
