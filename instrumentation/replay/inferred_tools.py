"""The tools of a session whose log names none: those that were called, with the parameters they were given."""

from collections.abc import Iterable

import orjson

from pager.errors import NotUnderstood
from pager.tools.definitions import Offers
from pager.wire.dialects import load as load_dialect

Json = dict[str, object]
Parameters = dict[str, str]

_KINDS = ((str, "string"), (bool, "boolean"), (int, "integer"), (float, "number"), (list, "array"), (dict, "object"))


class InferredTools:
    """The tools that were called so far; one that takes plain text instead of parameters is free-form."""

    def __init__(self) -> None:
        self._found: dict[str, Parameters] = {}
        self._free: set[str] = set()

    def take(self, name: str, arguments: object) -> None:
        """Take one call, with its decoded arguments."""
        parameters = self._found.setdefault(name, {})
        for key, value in arguments.items() if isinstance(arguments, dict) else ():
            parameters.setdefault(key, next((kind for of, kind in _KINDS if isinstance(value, of)), "string"))

    def take_free(self, name: str) -> None:
        """Take one call of a tool that takes plain text."""
        self._found.setdefault(name, {})
        self._free.add(name)

    @property
    def names(self) -> frozenset[str]:
        """The names of all of them."""
        return frozenset(self._found)

    def tools(self, dialect: str) -> list[Json]:
        """All of them, as a client would offer them in this wire format."""
        return [self._tool(dialect, name, parameters) for name, parameters in sorted(self._found.items())]

    def _tool(self, dialect: str, name: str, parameters: Parameters) -> Json:
        description = f"The tool {name}."
        if name in self._free:
            return {"type": "custom", "name": name, "description": description}
        schema = {"type": "object", "properties": {key: {"type": kind} for key, kind in parameters.items()}}
        return load_dialect(dialect).tool(name, description, schema)


def offers_in(dialect: str, tools: bytes) -> Offers | None:
    """A list of tools as it is read in a request; None if it can't be."""
    reader = load_dialect(dialect)
    try:
        listed = reader.offers(reader.parse(b'{"%b":[],"tools":%b}' % (reader.items_key.encode(), tools)))
    except NotUnderstood:
        return None
    return None if listed is None else listed.offers


def written(tools: Iterable[Json]) -> bytes:
    """A list of tools as a client would send it."""
    return orjson.dumps(list(tools))
