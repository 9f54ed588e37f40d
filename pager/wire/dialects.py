"""The wire formats, one folder each beside this module, found by name."""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from pager import wire
from pager.errors import ConfigError
from pager.wire.dialect import Dialect
from pager.wire.scripted import Scripted


@cache
def _found() -> dict[str, Dialect]:
    """One instance of each dialect; they hold no state, so everyone may share it."""
    found: dict[str, Dialect] = {}
    for entry in iter_modules(wire.__path__):
        if entry.ispkg:
            found[entry.name] = import_module(f"{wire.__name__}.{entry.name}.dialect").Dialect()
    return found


@cache
def scripted(name: str) -> Scripted:
    """The provider's side of a dialect, for the scripted model."""
    provider: Scripted = import_module(f"{wire.__name__}.{name}.scripted").Scripted()
    return provider


def names() -> list[str]:
    """The names of all dialects, sorted."""
    return sorted(_found())


def load(name: str) -> Dialect:
    """The dialect with this name; raises ConfigError if there is none."""
    try:
        return _found()[name]
    except KeyError:
        raise ConfigError(f"there is no dialect {name!r}; there are {', '.join(names())}") from None
