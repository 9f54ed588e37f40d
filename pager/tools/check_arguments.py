"""Checks a call's arguments against the schema of its tool.

Schemas come from anywhere and arguments from a model, so a check must end soon whatever both hold. Patterns run on RE2
instead of Python's backtracking engine, and a check has a budget of steps, as a few keywords that refer to each other
can ask for more than there is time for. What can't be checked is not refused: a broken schema, a reference to another
document (nothing is ever fetched), a pattern that RE2 does not know, a spent budget. Formats are not asserted, as the
standard has it by default; neither are the ``unevaluated`` keywords, whose search for what was evaluated has no bound.

jsonschema-rs is ten times quicker, but can't be bounded: 20 references that double at each step keep it for minutes.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import cache, lru_cache
from itertools import islice
from typing import Any, NoReturn

import orjson

from pager.text.linear_patterns import LARGEST_PROGRAM, program_of

MOST_ERRORS = 5
"""Errors reported of one call."""

LONGEST_ERROR = 200
"""In characters."""

STEPS = 100_000
"""Budget of a check: a keyword met is one step, and so is what takes about as long (4 µs)."""

STEPS_ON_THE_LOOP = 2_000
"""Budget of a check for which other calls wait: some 8 ms."""

DEEPEST = 150
"""Keywords in keywords. Python's own limit must not be met: the package's native parts panic there."""

LARGEST_SCHEMA = 1 << 18
"""In bytes; a larger one is not checked."""

_READ_ERRORS = 20  # of which the first in order are reported
_LONGEST_VALUE = 60
_LONGEST_PATH = 80
# What takes about one step:
_SHOWN = 400  # characters of a value that are made a message
_LISTED = 8  # names or values that a keyword or a value lists
_MATCHED = 400  # bytes times instructions that RE2 does, at worst
_COMPILED = 10  # instructions of a pattern that are made


def check(arguments_json: str, parameters: Any, steps: int = STEPS) -> list[str]:  # noqa: ANN401 - any JSON
    """The errors in a call's arguments, short and in a stable order; none if the arguments can't be checked.

    Blank arguments are those of a call without any, as some models write them. ``steps`` is the budget of the check,
    once the schema is prepared.
    """
    try:
        arguments = _decoded(arguments_json)
        schema = orjson.dumps(parameters)
    except ValueError as error:
        return [_clipped(f"the arguments are not valid JSON: {error}", LONGEST_ERROR)]
    except (RecursionError, TypeError):  # deeper than the stack; a schema with half an emoji, say
        return []
    return _errors(arguments, schema, steps) if len(schema) <= LARGEST_SCHEMA else []


def prepare(parameters: Any) -> None:  # noqa: ANN401 - any JSON
    """Do what the first check against a schema takes, before anybody waits for it."""
    check("{}", parameters)


def warm_up() -> None:
    """Load the packages that checks need, while nobody waits for them."""
    prepare({"type": "object"})


def is_json(arguments: str) -> bool:
    """Whether arguments can be decoded; blank ones can."""
    try:
        _decoded(arguments)
    except (ValueError, RecursionError):
        return False
    return True


def repair_text(tool_name: str, errors: Iterable[str], whole_schema_text: str) -> str:
    """The model's answer instead of a result: the errors, and the whole schema unless it is empty, as shown before."""
    listed = "\n".join(f"- {error}" for error in errors)
    whole = f"The tool in full:\n{whole_schema_text}\n" if whole_schema_text else "See the tool in full above.\n"
    return (
        f"{tool_name} was not run, because the arguments do not fit its parameters:\n{listed}\n"
        f"{whole}Call {tool_name} again with arguments that fit."
    )


def _decoded(arguments: str) -> Any:  # noqa: ANN401 - any JSON
    if not arguments.strip():
        return {}
    try:
        return orjson.loads(arguments)
    except ValueError:
        return json.loads(arguments, parse_constant=_refused)  # knows half an emoji, as the clients' parsers do


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


class _Unchecked(Exception):
    """A check takes too long, leads too deep, or follows a reference to what is no schema."""


class _Budget:
    """What is left of one check's steps, and the levels it is deep.

    ``sound`` are the ids of the schema's parts that are known to be schemas; None while all are.
    """

    def __init__(self, steps: int = STEPS, sound: set[int] | None = None) -> None:
        self.left = steps
        self.depth = 0
        self.sound = sound

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0 or self.depth >= DEEPEST:
            raise _Unchecked


_budget: ContextVar[_Budget] = ContextVar("budget")


def _errors(arguments: Any, schema: bytes, steps: int) -> list[str]:  # noqa: ANN401 - any JSON
    validator, sound = _validator(schema)
    before = _budget.set(_Budget(steps, sound))
    try:
        found = list(islice(validator.iter_errors(arguments), _READ_ERRORS)) if validator else []
        return list(dict.fromkeys(sorted(map(_message, found))))[:MOST_ERRORS]
    except (_Unchecked, RecursionError, OverflowError):  # deep values, and a multiple of a number that no float holds
        return []
    finally:
        _budget.reset(before)


# Messages


def _message(error: Any) -> str:  # noqa: ANN401 - the package has no types
    """Place and reason of an error; of alternatives of which none fits, those of the likeliest one."""
    from jsonschema.exceptions import best_match  # type: ignore[import-untyped]

    likeliest = best_match([error])
    reason, shown = str(likeliest.message), repr(likeliest.instance)
    if reason.startswith(shown):  # a long value is shortened, so that the reason after it is seen
        value = json.dumps(likeliest.instance, ensure_ascii=False)
        reason = _clipped(value, _LONGEST_VALUE) + reason[len(shown) :]
    return _clipped(f"{_clipped(likeliest.json_path, _LONGEST_PATH)}: {reason}", LONGEST_ERROR)


def _clipped(text: str, width: int) -> str:
    """One line of at most ``width`` characters, without half an emoji."""
    line = " ".join(text[: 4 * width].split()).encode("utf-8", "replace").decode()
    return line if len(line) <= width else f"{line[: width - 3]}..."


# Validators


@lru_cache(maxsize=256)
def _validator(schema: bytes) -> tuple[Any, set[int]]:
    """The validator of a schema in compact JSON, and the ids of its parts; None if it is none, or too large to say."""
    from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # takes a while to import
    from jsonschema.validators import validator_for  # type: ignore[import-untyped]
    from referencing import Registry

    decoded = orjson.loads(schema)
    draft = decoded.get("$schema") if isinstance(decoded, dict) else None
    before = _budget.set(_Budget())  # of its own: how a schema is taken must not depend on the call it came with
    try:
        named = {"$schema": draft} if isinstance(draft, str) else {}
        guarded = _guarded(validator_for(named, default=Draft202012Validator))
        sound = set(_sound_parts(guarded, decoded))
    except (_Unchecked, RecursionError, ValueError):  # the latter of a draft that is no address
        return None, set()
    finally:
        _budget.reset(before)
    return guarded(decoded, registry=Registry()), sound  # this registry fetches nothing


def _sound_parts(guarded: Any, schema: Any) -> Iterator[int]:  # noqa: ANN401 - the package has no types
    """The ids of a schema and of all schemas in it; raises ``_Unchecked`` where it is none."""
    from referencing import Registry
    from referencing.jsonschema import DRAFT3, specification_with

    draft = specification_with(guarded.META_SCHEMA["$schema"])
    if draft is DRAFT3 or not guarded(guarded.META_SCHEMA, registry=Registry()).is_valid(schema):
        raise _Unchecked  # of draft 3, which nobody writes any more, the package does not find the parts
    left = [schema]
    while left:
        part = left.pop()
        yield id(part)
        left.extend(draft.subresources_of(part))


@cache
def _guarded(draft: Any) -> Any:  # noqa: ANN401 - the package has no types
    """A draft's validators with keywords of our own where the package's may take too long, and all of them counted."""
    import attrs
    from jsonschema.validators import extend

    ours = {
        "$dynamicRef": _reference,
        "$ref": _reference,
        "additionalProperties": _additional_properties,
        "format": _nothing,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "unevaluatedItems": _nothing,
        "unevaluatedProperties": _nothing,
        "uniqueItems": _unique_items,
    }
    known = {name: ours.get(name, keyword) for name, keyword in draft.VALIDATORS.items()}
    made = extend(draft, {name: _counted(keyword, _STEPS.get(name, 1)) for name, keyword in known.items()})
    made.evolve = attrs.evolve  # the package's own takes its own class again for a part that names a draft
    return made


_Keyword = Callable[[Any, Any, Any, Mapping[str, Any]], Iterable[Any] | None]


_STEPS = {"$ref": 6, "$dynamicRef": 6, "$recursiveRef": 6}  # to find what is referred to


def _counted(keyword: _Keyword, steps: int) -> _Keyword:
    def counted(validator: Any, value: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[Any]:  # noqa: ANN401
        budget = _budget.get()
        listed = sum(len(each) for each in (value, instance) if isinstance(each, dict | list))
        budget.spend(steps + listed // _LISTED)
        budget.depth += 1
        try:
            for error in keyword(validator, value, instance, schema) or ():
                budget.spend(1 + len(error.message) // _SHOWN)
                yield error
        finally:
            budget.depth -= 1

    return counted


def _nothing(*_: object) -> None:
    """A keyword that is not asserted."""


def _error(message: str) -> Any:  # noqa: ANN401 - the package has no types
    from jsonschema import ValidationError

    return ValidationError(message)


def _reference(validator: Any, reference: Any, instance: Any, _: object) -> Iterator[Any]:  # noqa: ANN401 - any JSON
    """A schema elsewhere. It may lie where none is expected, and was not checked with the root then."""
    from referencing.exceptions import Unresolvable

    if not isinstance(reference, str):  # which draft 4 does not forbid
        raise _Unchecked
    try:
        target = validator._resolver.lookup(reference)  # noqa: SLF001 - as the package's own keyword does
    except (
        Unresolvable,
        AttributeError,  # not documented: a property named $id on the way, taken for the schema's
        TypeError,  # not documented: a path through a number
        ValueError,  # of urllib and int: no address, no place in a list
    ) as error:
        raise _Unchecked from error
    budget = _budget.get()
    if budget.sound is not None and id(target.contents) not in budget.sound:
        sound, budget.sound = budget.sound, None
        sound.update(_sound_parts(type(validator), target.contents))
        budget.sound = sound
    yield from validator.descend(instance, target.contents, resolver=target.resolver)


def _unique_items(_: Any, unique: Any, instance: Any, __: object) -> Iterator[Any]:  # noqa: ANN401 - any JSON
    """In one pass; the package compares each object with each other."""
    if not unique or not isinstance(instance, list):
        return
    seen = set()
    for item in instance:
        text = json.dumps(_comparable(item), sort_keys=True)
        _budget.get().spend(2 + len(text) // _SHOWN)
        seen.add(text)
    if len(seen) < len(instance):
        yield _error("has items that are not unique")


def _comparable(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """The same for 1 and 1.0, which are one number in JSON Schema."""
    if isinstance(value, dict):
        return {name: _comparable(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_comparable(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _additional_properties(validator: Any, allowed: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[Any]:  # noqa: ANN401
    if not isinstance(instance, dict):
        return
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    extras = [name for name in instance if name not in named and all(_match(each, name) is False for each in patterns)]
    if isinstance(allowed, dict):
        for name in extras:
            yield from validator.descend(instance[name], allowed, path=name)
    elif not allowed and extras:
        yield _error(f"does not allow {', '.join(map(repr, sorted(extras)[:10]))}")


# Patterns


def _pattern(_: object, pattern: str, instance: Any, __: object) -> Iterator[Any]:  # noqa: ANN401 - any JSON
    if isinstance(instance, str) and _match(pattern, instance) is False:
        yield _error(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Mapping[str, Any], instance: Any, _: object) -> Iterator[Any]:  # noqa: ANN401
    for pattern, schema in patterns.items() if isinstance(instance, dict) else ():
        for name, value in instance.items():
            if _match(pattern, name):
                yield from validator.descend(value, schema, path=name, schema_path=pattern)


def _match(pattern: str, text: str) -> bool | None:
    """Whether the pattern is found in the text; None if that is not known, or not in the time that is left."""
    program = _compiled(pattern)
    if program is None or (not text.isascii() and "\\s" in pattern.lower()):  # RE2 knows no spaces but those of ASCII
        return None
    encoded = text.encode("utf-8", "surrogatepass")
    budget = _budget.get()
    steps = len(encoded) * program.programsize // _MATCHED
    if steps > budget.left:
        return None
    budget.spend(steps)
    return program.search(encoded) is not None


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> Any:  # noqa: ANN401 - the package has no types
    """The program of a pattern, or None if RE2 refuses it or it is too large; the first check pays for it."""
    program = program_of(pattern, memory=1 << 20)
    if program is None:
        return None
    _budget.get().spend(program.programsize // _COMPILED)
    return program if program.programsize <= LARGEST_PROGRAM else None
