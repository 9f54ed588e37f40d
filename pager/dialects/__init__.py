"""The wire formats, one file each, found by their file name."""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from pager.dialect import Dialect
from pager.errors import ConfigError


@cache
def _found() -> dict[str, Dialect]:
    """One instance of each dialect; they hold no state, so everyone may share it."""
    found: dict[str, Dialect] = {}
    for entry in iter_modules(__path__):
        if entry.name.startswith("_"):
            continue
        kind: type[Dialect] | None = getattr(import_module(f"{__name__}.{entry.name}"), "Dialect", None)
        if kind is not None:
            found[entry.name] = kind()
    return found


def names() -> list[str]:
    """The names of all dialects, sorted."""
    return sorted(_found())


def load(name: str) -> Dialect:
    """The dialect with this name; raises ConfigError if there is none."""
    try:
        return _found()[name]
    except KeyError:
        raise ConfigError(f"there is no dialect {name!r}; there are {', '.join(names())}") from None
