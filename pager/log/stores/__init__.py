"""The backends of the session log, one file each, found by name.

A backend is a module here whose name has no leading underscore, with a class ``Store`` that has the methods of
``pager.log.store.Store``, class methods ``open(folder)`` and ``salvage(folder)``, and a class attribute ``durable``.
"""

import importlib
import pkgutil
from pathlib import Path

from pager.errors import ConfigError
from pager.log.store import Store


def names() -> list[str]:
    """The stores there are, by file name; none is imported, as a backend may need packages that are not installed."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def expect_known(name: str) -> None:
    """Raise ConfigError unless there is a store of this name."""
    if name not in names():
        raise ConfigError(f"there is no store named {name!r}; there are: {', '.join(names())}")


def open_store(name: str, where: Path) -> Store:
    """Open the store of this name in a folder; raises StoreError if it can't be opened."""
    expect_known(name)
    store: Store = importlib.import_module(f"{__name__}.{name}").Store.open(where)
    return store


def salvage(name: str, where: Path) -> list[str]:
    """Rebuild a log that can't be opened from what can be read of it; says what was done and what is lost."""
    expect_known(name)
    lines: list[str] = importlib.import_module(f"{__name__}.{name}").Store.salvage(where)
    return lines
