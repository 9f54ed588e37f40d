"""Checks a call's arguments against the schema of its tool.

Schemas come from anywhere and arguments from a model, so a check must end soon whatever both hold. Patterns run on RE2
instead of Python's backtracking engine, and a check has a budget of steps, as a few keywords that refer to each other
can ask for more than there is time for. What can't be checked is not refused: a broken schema, a reference to another
document (nothing is ever fetched), a pattern that RE2 does not know, a spent budget. Formats are not asserted, as the
standard has it by default; neither are the ``unevaluated`` keywords, whose search for what was evaluated has no bound.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import cache, lru_cache
from itertools import islice
from typing import Any, NoReturn

import orjson

MOST_ERRORS = 5
"""Errors that are told of one call."""

LONGEST_ERROR = 200
"""In characters."""

STEPS = 100_000
"""What a check may cost: a keyword met is one step, and so is what takes about as long (4 µs)."""

STEPS_ON_THE_LOOP = 2_000
"""What a check may cost where other calls wait for it: some 8 ms."""

DEEPEST = 150
"""Keywords in keywords. Python's own limit must not be met: the package's native parts panic there."""

LARGEST_SCHEMA = 1 << 18
"""In bytes; a larger one is not checked."""

_READ_ERRORS = 20  # of which those are told that come first in order
_LONGEST_VALUE = 60
_LONGEST_PATH = 80
# What takes about one step:
_SHOWN = 400  # characters of a value that are made a message
_LISTED = 8  # names or values that a keyword or a value lists
_MATCHED = 400  # bytes times instructions that RE2 does, at worst
_COMPILED = 10  # instructions of a pattern that are made
_MAX_MEMORY = 1 << 20
_MAX_PROGRAM = 5_000  # instructions


def check(arguments_json: str, parameters: Any, steps: int = STEPS) -> list[str]:  # noqa: ANN401 - any JSON
    """What is wrong with a call's arguments, shortly and in a stable order; nothing if they can't be checked.

    Blank arguments are those of a call without any, as some models write them. ``steps`` is what the check may cost,
    once the schema is prepared.
    """
    try:
        arguments = _decoded(arguments_json) if arguments_json.strip() else {}
    except ValueError as error:
        return [_clipped(f"the arguments are not valid JSON: {error}", LONGEST_ERROR)]
    except RecursionError:
        return []
    try:
        schema = orjson.dumps(parameters)
    except TypeError:
        return []
    return _errors(arguments, schema, steps) if len(schema) <= LARGEST_SCHEMA else []


def prepare(parameters: Any) -> None:  # noqa: ANN401 - any JSON
    """Do what the first check against a schema takes, before anybody waits for it."""
    check("{}", parameters)


def warm_up() -> None:
    """Load what checks need, while nobody waits for it."""
    prepare({"type": "object"})


def is_json(arguments: str) -> bool:
    """Whether arguments can be read at all; blank ones are those of a call without any."""
    try:
        return not arguments.strip() or _decoded(arguments) is not None or arguments.strip() == "null"
    except (ValueError, RecursionError):
        return False


def repair_text(tool_name: str, errors: Iterable[str], whole_schema_text: str) -> str:
    """What the model is answered instead of a result: the errors, and the whole schema unless it was told before."""
    listed = "\n".join(f"- {error}" for error in errors)
    whole = f"The tool in full:\n{whole_schema_text}\n" if whole_schema_text else "See the tool in full above.\n"
    return (
        f"{tool_name} was not run, because the arguments do not fit its parameters:\n{listed}\n"
        f"{whole}Call {tool_name} again with arguments that fit."
    )


def _decoded(text: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return orjson.loads(text)
    except ValueError:
        return json.loads(text, parse_constant=_refused)  # knows half an emoji, as the clients' parsers do


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


class _Spent(Exception):
    """A check takes too long or leads too deep."""


class _Budget:
    """What one check may still cost."""

    def __init__(self, steps: int = STEPS) -> None:
        self.left = steps
        self.depth = 0

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0 or self.depth >= DEEPEST:
            raise _Spent


_budget: ContextVar[_Budget] = ContextVar("budget")


def _errors(arguments: Any, schema: bytes, steps: int) -> list[str]:  # noqa: ANN401 - any JSON
    from referencing.exceptions import Unresolvable  # takes a while to import, and most calls are not checked

    before = _budget.set(_Budget(steps))
    try:
        validator = _validator(schema)
        found = list(islice(validator.iter_errors(arguments), _READ_ERRORS)) if validator else []
        return list(dict.fromkeys(sorted(map(_told, found))))[:MOST_ERRORS]
    # A reference may lead to a part of the schema that is none, and was not checked to be one: anything may break then.
    except (_Spent, Unresolvable, RecursionError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        return []
    finally:
        _budget.reset(before)


# Telling an error


def _told(error: Any) -> str:  # noqa: ANN401 - the package has no types
    """Where it is and what; of alternatives of which none fits, what is wrong with the likeliest one."""
    from jsonschema.exceptions import best_match  # type: ignore[import-untyped]

    likeliest = best_match([error])
    path = _clipped(likeliest.json_path, _LONGEST_PATH)
    return _clipped(f"{path}: {_reason(likeliest)}", LONGEST_ERROR)


def _reason(error: Any) -> str:  # noqa: ANN401 - the package has no types
    """The package's message, in which a long value is shortened so that the reason after it is seen."""
    shown = repr(error.instance)
    if not error.message.startswith(shown):
        return str(error.message)
    return _clipped(json.dumps(error.instance, ensure_ascii=False), _LONGEST_VALUE) + str(error.message[len(shown) :])


def _clipped(text: str, width: int) -> str:
    """In one line, at most so long, and without half an emoji."""
    line = " ".join(text[: 4 * width].split()).encode("utf-8", "replace").decode()
    return line if len(line) <= width else f"{line[: width - 3]}..."


# Validators


@lru_cache(maxsize=256)
def _validator(schema: bytes) -> Any:  # noqa: ANN401 - the package has no types
    """The validator of a schema, given as compact JSON, or None if it is none, or too large to be sure."""
    from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
    from jsonschema.validators import validator_for  # type: ignore[import-untyped]
    from referencing import Registry

    decoded = orjson.loads(schema)
    draft = validator_for(decoded, default=Draft202012Validator)
    guarded = _guarded(draft)
    before = _budget.set(_Budget())  # of its own: how a schema is taken must not depend on the call it came with
    try:
        sound = guarded(draft.META_SCHEMA, registry=Registry()).is_valid(decoded)
    except (_Spent, RecursionError):
        return None
    finally:
        _budget.reset(before)
    return guarded(decoded, registry=Registry()) if sound else None  # this registry fetches nothing


@cache
def _guarded(draft: Any) -> Any:  # noqa: ANN401 - the package has no types
    """A draft's validators with keywords of our own where the package's may take too long, and all of them counted."""
    import attrs
    from jsonschema.validators import extend

    ours = {
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
        budget.spend(steps + (_length(value) + _length(instance)) // _LISTED)
        budget.depth += 1
        try:
            for error in keyword(validator, value, instance, schema) or ():
                budget.spend(1 + len(error.message) // _SHOWN)
                yield error
        finally:
            budget.depth -= 1

    return counted


def _length(value: Any) -> int:  # noqa: ANN401 - any JSON
    return len(value) if isinstance(value, dict | list) else 0


def _nothing(*_: object) -> None:
    """A keyword that is not asserted."""


def _error(message: str) -> Any:  # noqa: ANN401 - the package has no types
    from jsonschema import ValidationError

    return ValidationError(message)


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
    extras = [name for name in instance if name not in named and not any(_may_match(each, name) for each in patterns)]
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


def _may_match(pattern: str, text: str) -> bool:
    return _match(pattern, text) is not False


def _match(pattern: str, text: str) -> bool | None:
    """Whether the pattern is found in the text; None if that can't be said, or not in the time that is left."""
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
    """The program of a pattern, or None if RE2 refuses it or it would be too large."""
    import re2  # type: ignore[import-untyped]  # loads a large library, which most calls have no use for

    options = re2.Options()
    options.max_mem = _MAX_MEMORY
    options.log_errors = False
    options.never_capture = True
    try:
        program = re2.compile(pattern.encode("utf-8", "surrogatepass"), options)
    except re2.error:
        return None
    re2.purge()  # it would keep programs of its own
    _budget.get().spend(program.programsize // _COMPILED)
    return program if program.programsize <= _MAX_PROGRAM else None
