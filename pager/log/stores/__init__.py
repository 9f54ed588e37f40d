"""The stores of the session log, each one folder here, opened by a URL such as ``sqlite:PATH`` or ``memory:``.

The folder has the name of the URL's scheme and a module ``store`` with a class ``Store``, which is both the store
(``pager.log.store.Store``) and its ``Backend``. What follows the colon is the store's own business.
"""

import importlib
import pkgutil
from pathlib import Path
from typing import ClassVar, Protocol

from pager.errors import ConfigError
from pager.log.store import Store


class Backend(Protocol):
    """What a class of stores can do with an address, the part of a URL behind the scheme.

    A store that keeps no file inherits what this says of files.
    """

    durable: ClassVar[bool]
    """Whether the log outlives its process, so that others can read it."""

    @classmethod
    def open(cls, address: str, *, read_only: bool = False) -> Store:
        """Open the log, making it if need be; raises StoreError where that fails, or there is none to be read."""

    @classmethod
    def exists(cls, address: str) -> bool:
        """Whether there is a log."""

    @classmethod
    def folder(cls, address: str) -> Path | None:  # noqa: ARG003 - of stores without files
        """The folder on this machine's disk that holds the log; None where none does."""
        return None

    @classmethod
    def salvage(cls, address: str) -> list[str]:  # noqa: ARG003
        """Rebuild a log that can't be opened from what can be read of it; what was done and what is lost."""
        return []

    @classmethod
    def recognises(cls, head: bytes) -> bool:  # noqa: ARG003
        """Whether a file that begins with these bytes may be a log of this kind; its path is an address then."""
        return False


def schemes() -> list[str]:
    """The schemes there are; no store is imported, as one may need packages that are not installed."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def expect_known(url: str) -> None:
    """Raise ConfigError unless there is a store for the scheme of this URL."""
    scheme = url.partition(":")[0]
    if scheme not in schemes():
        known = ", ".join(f"{name}:" for name in schemes())
        raise ConfigError(f"there is no store for {scheme}:; a store's URL begins with one of {known}")


class Location:
    """Where a log is, by the URL of its store; raises ConfigError where there is no such store."""

    def __init__(self, url: str) -> None:
        expect_known(url)
        scheme, _, self._address = url.partition(":")
        self._backend = _backend(scheme)

    @property
    def durable(self) -> bool:
        """Whether the log outlives its process."""
        return self._backend.durable

    @property
    def folder(self) -> Path | None:
        """The folder that holds the log; None where none does."""
        return self._backend.folder(self._address)

    def exists(self) -> bool:
        """Whether there is a log."""
        return self._backend.exists(self._address)

    def open(self, *, read_only: bool = False) -> Store:
        """Open the log; raises StoreError if it can't be opened."""
        return self._backend.open(self._address, read_only=read_only)

    def salvage(self) -> list[str]:
        """Rebuild a log that can't be opened from what can be read of it; what was done and what is lost."""
        return self._backend.salvage(self._address)


def open_store(url: str, *, read_only: bool = False) -> Store:
    """Open the log at this URL; raises StoreError if it can't be opened."""
    return Location(url).open(read_only=read_only)


def url_of_file(path: Path, head: bytes) -> str:
    """The URL of the log in a file that begins with these bytes; empty if it is no log."""
    return next((f"{scheme}:{path}" for scheme in schemes() if _backend(scheme).recognises(head)), "")


def _backend(scheme: str) -> type[Backend]:
    backend: type[Backend] = importlib.import_module(f"{__name__}.{scheme}.store").Store
    return backend
