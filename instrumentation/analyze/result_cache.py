"""Keeps the results of files from one run to the next, in a folder whose content is never trusted.

It is one SQLite table of bytes by the hash of a name. A file with any other schema is begun anew. Each entry is sealed
with its name, so an entry that is damaged or in another's place counts as missing; nothing is unpickled.
"""

import sqlite3
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

import msgspec

SIZE_LIMIT = 256 << 20
"""Bytes of entries beyond which the oldest are dropped."""

PATIENCE = 2.0
"""Seconds to wait for another run that writes."""

T = TypeVar("T")
_FILE = "cache.db"
_SCHEMA = "CREATE TABLE entries (number INTEGER PRIMARY KEY, name BLOB NOT NULL UNIQUE, sealed BLOB NOT NULL)"
_TRIM = """
DELETE FROM entries WHERE number <= (
    SELECT max(number) FROM (
        SELECT number, sum(length(sealed)) OVER (ORDER BY number DESC) AS size FROM entries
    ) WHERE size > ?
)"""
_SEAL = 16


class ResultCache:
    """Values by name, in a folder; a folder that can't be read or written is an empty cache."""

    def __init__(self, folder: Path) -> None:
        self._file = _opened(folder)

    def get(self, name: str, kind: type[T]) -> T | None:
        """The value of this name; None unless it is there, whole and of this kind."""
        key = _key(name)
        found = self._run("SELECT sealed FROM entries WHERE name = ?", key)
        raw = found[0][0] if found else None
        if not isinstance(raw, bytes) or raw[:_SEAL] != _seal(key, raw[_SEAL:]):
            return None
        try:
            return msgspec.msgpack.decode(raw[_SEAL:], type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def put(self, name: str, value: object) -> None:
        """Keep a value."""
        key, raw = _key(name), msgspec.msgpack.encode(value)
        self._run("INSERT OR REPLACE INTO entries (name, sealed) VALUES (?, ?)", key, _seal(key, raw) + raw)

    def close(self, limit: int = SIZE_LIMIT) -> None:
        """Drop the oldest entries beyond ``limit`` bytes, and close the file."""
        self._run(_TRIM, limit)
        if self._file is not None:
            self._file.close()

    def _run(self, statement: str, *values: object) -> list[tuple[object]]:
        """The rows of a statement; none if the file can't be used."""
        if self._file is None:
            return []
        try:
            return self._file.execute(statement, values).fetchall()
        except sqlite3.Error:
            return []


def _key(name: str) -> bytes:
    return blake2b(name.encode("utf-8", "surrogatepass")).digest()


def _seal(key: bytes, raw: bytes) -> bytes:
    return blake2b(raw, digest_size=_SEAL, key=key).digest()


def _opened(folder: Path) -> sqlite3.Connection | None:
    """The folder's file, begun anew if it is damaged or not ours; None if there can be none."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        files = list(folder.glob(f"{_FILE}*"))
        # A link leads to a file that is not ours to write; removing it leaves that file alone.
        if any(path.is_symlink() for path in files) or not _is_ours(folder / _FILE):
            for path in files:
                path.unlink()
        file = sqlite3.connect(folder / _FILE, timeout=PATIENCE, isolation_level=None)
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA synchronous = NORMAL")
        file.execute(_SCHEMA.replace("TABLE", "TABLE IF NOT EXISTS"))
    except (sqlite3.Error, OSError):
        return None
    return file


def _is_ours(path: Path) -> bool:
    """Whether the file has our schema and no more, as triggers and views would run; a file in use counts as ours."""
    if not path.exists():
        return True
    try:
        with closing(sqlite3.connect(path, timeout=PATIENCE)) as file:
            schema = [sql for (sql,) in file.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")]
    except sqlite3.DatabaseError as error:
        return getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_BUSY
    return schema in ([], [_SCHEMA])
