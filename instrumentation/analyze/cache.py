"""Keeps what was learned of files from one run to the next, in a folder whose content is never trusted.

diskcache would unpickle what it finds, which runs whatever somebody has put there. The disk of our own takes bytes
under names and gives nothing else back, whatever the file says; it neither reads nor removes other files. An entry is
sealed with its name, so that one that is damaged, or stands in another's place, is as good as none.
"""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import diskcache  # type: ignore[import-untyped]
import msgspec
from diskcache.core import DBNAME, DEFAULT_SETTINGS, METADATA, MODE_RAW  # type: ignore[import-untyped]

SIZE_LIMIT = 256 << 20
PATIENCE = 2.0
"""Seconds to wait for another run that writes."""

T = TypeVar("T")
_SEAL = 16


class BytesDisk(diskcache.Disk):  # type: ignore[misc]  # diskcache has no types
    """Keeps bytes under names in the database itself, and refuses all else."""

    def __init__(self, directory: str, **_: object) -> None:
        super().__init__(directory)

    def put(self, key: object) -> tuple[str, bool]:
        """A name as the database keeps it."""
        if not isinstance(key, str):
            raise TypeError(f"a name must be text, found {key!r}")
        return key, True

    def get(self, key: object, raw: object) -> str:
        """A name that was kept; raises OSError for what is none."""
        if not raw or not isinstance(key, str):
            raise OSError("not a name")
        return key

    def store(self, value: object, read: object, key: object = None) -> tuple[int, int, None, bytes]:  # noqa: ARG002
        """A value as the database keeps it: size, mode, no file, and the bytes."""
        if not isinstance(value, bytes):
            raise TypeError(f"a value must be bytes, found {type(value).__name__}")
        return 0, MODE_RAW, None, value

    def fetch(self, mode: object, filename: object, value: object, read: object) -> bytes:
        """A value that was kept; raises OSError, which counts as none, for all that is not plain bytes."""
        if mode != MODE_RAW or filename is not None or read or not isinstance(value, bytes):
            raise OSError("not plain bytes")
        return value

    def remove(self, file_path: object) -> None:
        """Nothing: there are no files, and what the database names instead may be somebody's own."""


class Cache:
    """Values by name, in a folder; one that can't be read or written is as good as none."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept = _opened(folder)

    def get(self, name: str, kind: type[T]) -> T | None:
        """The value of this name, if it is there, whole and of this kind."""
        raw = self._try(lambda kept: kept.get(name))
        if not isinstance(raw, bytes) or raw[:_SEAL] != _seal(name, raw[_SEAL:]):
            return None
        try:
            return msgspec.msgpack.decode(raw[_SEAL:], type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def put(self, name: str, value: object) -> None:
        """Keep a value."""
        raw = msgspec.msgpack.encode(value)
        self._try(lambda kept: kept.set(name, _seal(name, raw) + raw))

    def close(self) -> None:
        """Release the folder."""
        if self._kept is not None:
            self._kept.close()

    def _try(self, act: Callable[[diskcache.Cache], object]) -> object:
        if self._kept is None:
            return None
        try:
            return act(self._kept)
        except (sqlite3.Error, OSError, diskcache.Timeout):
            return None


def _seal(name: str, raw: bytes) -> bytes:
    return blake2b(raw, digest_size=_SEAL, key=blake2b(name.encode("utf-8", "surrogatepass")).digest()).digest()


def _opened(folder: Path) -> diskcache.Cache | None:
    """The folder's cache, begun anew if it is damaged; None if there can be none."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        files = list(folder.glob(f"{DBNAME}*"))
        # A link leads to a file that is not ours to write; removing it leaves that file alone.
        if any(path.is_symlink() for path in files) or not _is_sound(folder / DBNAME):
            for path in files:
                path.unlink()
        return diskcache.Cache(str(folder), timeout=PATIENCE, disk=BytesDisk, **_settings())
    except (sqlite3.Error, OSError, diskcache.Timeout):
        return None


def _settings() -> dict[str, Any]:
    """All settings, so that none of those in the file counts."""
    return {**DEFAULT_SETTINGS, "size_limit": SIZE_LIMIT}


def _is_sound(path: Path) -> bool:
    """Whether diskcache may open the file: it takes each setting that stands there for an attribute of its own."""
    if not path.exists():
        return True
    try:
        with closing(sqlite3.connect(path, timeout=PATIENCE)) as file:
            names = {name for (name,) in file.execute("SELECT key FROM Settings")}
            file.execute("SELECT mode, filename, value FROM Cache WHERE key = ? AND raw = 1", ("",)).fetchall()
    except sqlite3.DatabaseError as error:
        return getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_BUSY
    return names <= {*DEFAULT_SETTINGS, *METADATA}
