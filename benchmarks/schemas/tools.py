"""Tools as MCP servers offer them, and calls of them: arguments that fit, and arguments that do not."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from pager.tools.check_arguments import check

Json = Mapping[str, Any]

_DEEPEST = 6
_TRIES = 200
_WORDS = ("harbour", "lantern", "violet", "meadow", "copper", "autumn", "bridge", "silver", "garden")
_OTHERS: Mapping[str, Any] = {"string": 7, "integer": "seven", "number": "seven", "boolean": "yes", "array": "none"}
"""What a careless caller writes where another type is wanted."""


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """One tool of a server."""

    name: str
    description: str
    schema: Json

    def errors(self, arguments: str) -> list[str]:
        """What is wrong with a call's arguments."""
        return check(arguments, self.schema)


def read_tools(folder: Path) -> list[OfferedTool]:
    """The tools of all sets in a folder, in the order of the files; a file is what one server answers to tools/list."""
    sets = [orjson.loads(path.read_bytes())["tools"] for path in sorted(folder.glob("tools_*.json"))]
    return [OfferedTool(one["name"], one.get("description", ""), one["inputSchema"]) for tools in sets for one in tools]


def fitting(tool: OfferedTool, rng: random.Random) -> Json:
    """Arguments that the tool's schema allows; raises ValueError where none were found."""
    for _ in range(_TRIES):
        made = _value(tool.schema, tool.schema, rng, 0)
        if isinstance(made, dict) and not tool.errors(orjson.dumps(made).decode()):
            return made
    raise ValueError(f"no arguments were found for {tool.name}")


def careless(tool: OfferedTool, arguments: Json) -> Json | None:
    """The arguments with one mistake, as a model makes them; None for a tool that takes everything."""
    for wrong in _mistakes(tool, arguments):
        if tool.errors(orjson.dumps(wrong).decode()):
            return wrong
    return None


def _mistakes(tool: OfferedTool, arguments: Json) -> Iterator[Json]:
    """One of another type, one that is forgotten, one that is made up."""
    for name, schema in tool.schema.get("properties", {}).items():
        kind = schema.get("type") if isinstance(schema, dict) else None
        if isinstance(kind, str) and kind in _OTHERS:
            yield {**arguments, name: _OTHERS[kind]}
    for name in tool.schema.get("required", []):
        yield {key: value for key, value in arguments.items() if key != name}
    yield {**arguments, "verbose": True}


def _value(schema: Any, root: Json, rng: random.Random, depth: int) -> Any:  # noqa: ANN401 - any JSON
    """A value that the schema probably allows."""
    if not isinstance(schema, dict):
        return rng.choice(_WORDS)
    if "$ref" in schema:
        return _value(_referred(schema["$ref"], root), root, rng, depth + 1)
    if "const" in schema or schema.get("enum"):
        return schema["const"] if "const" in schema else rng.choice(schema["enum"])
    for keyword in ("anyOf", "oneOf", "allOf"):
        if schema.get(keyword) and "properties" not in schema:
            return _value(rng.choice(schema[keyword]), root, rng, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    return _of_type(rng.choice(kind) if isinstance(kind, list) else kind, schema, root, rng, depth)


def _referred(reference: str, root: Json) -> Any:  # noqa: ANN401 - any JSON
    found: Any = root
    for step in reference.split("/")[1:]:
        found = found[step]
    return found


def _of_type(kind: str, schema: Json, root: Json, rng: random.Random, depth: int) -> Any:  # noqa: ANN401 - any JSON
    match kind:
        case "object":
            return _object(schema, root, rng, depth)
        case "array":
            size = max(schema.get("minItems", 0), rng.randint(0, 2) if depth < _DEEPEST else 0)
            return [_value(schema.get("items"), root, rng, depth + 1) for _ in range(size)]
        case "integer" | "number":
            least = schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
            return min(least + rng.randint(0, 20), schema.get("maximum", 1 << 40))
        case "boolean":
            return rng.random() < 0.5
        case "null":
            return None
    text = " ".join(rng.choices(_WORDS, k=3))
    return text[: schema.get("maxLength", 100)].ljust(schema.get("minLength", 1), "x")


def _object(schema: Json, root: Json, rng: random.Random, depth: int) -> Json:
    """All that must be there, and some of the rest, the less the deeper."""
    required: Sequence[str] = schema.get("required", [])
    some = 0.4 / (1 + depth)
    chosen = [name for name in schema.get("properties", {}) if name in required or rng.random() < some]
    return {name: _value(schema["properties"][name], root, rng, depth + 1) for name in chosen}
