"""Opens the log's SQLite file: private to its user, in the format that this version reads and writes.

One process at a time writes. SQLite alone would see to that, but versions before 3.51.3 can damage the file when one
connection commits at the wrong moment of another's checkpoint. A lock on the folder, held around every transaction and
every checkpoint, rules that out; the kernel releases it when its holder dies, however it dies.
"""

import errno
import fcntl
import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import TracebackType

from pager.errors import StoreCorrupt, StoreError

SUFFIX = ".sqlite3"
FILE_NAME = f"ctxpager{SUFFIX}"
FILE_VERSION = 1
APPLICATION_ID = 0x63747870  # "ctxp": marks our files among other programs' databases
PATIENCE = 2.0  # seconds to wait for another process; a call waits with us, so it may not be long
PAGE = 2048  # bytes; a commit writes whole pages, and calls are small: half the usual size makes it a third faster
WAL_BYTES = 4 << 20  # the room that the write-ahead log has from the start

_SCHEMA = (
    """CREATE TABLE events (
        seq INTEGER PRIMARY KEY, session TEXT NOT NULL, at REAL NOT NULL, version INTEGER NOT NULL,
        kind TEXT NOT NULL, data TEXT NOT NULL)""",
    "CREATE INDEX events_by_session ON events (session)",  # an index ends in seq by itself
    # Content goes to the end of a table of its own and only the small index on digests is written in random places.
    """CREATE TABLE blobs (
        id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, size INTEGER NOT NULL, codec TEXT NOT NULL,
        data BLOB NOT NULL)""",
    """CREATE TABLE marks (
        tenant TEXT NOT NULL, mark BLOB NOT NULL, session TEXT NOT NULL, branch INTEGER NOT NULL,
        call INTEGER NOT NULL, PRIMARY KEY (tenant, mark)) WITHOUT ROWID""",
    "CREATE TABLE sessions (session TEXT PRIMARY KEY, head BLOB NOT NULL) WITHOUT ROWID",
    """CREATE TABLE lost_events (
        seq INTEGER PRIMARY KEY, session, at, version, kind, data, reason TEXT NOT NULL)""",
    """CREATE TABLE lost_blobs (
        id INTEGER PRIMARY KEY, digest, size, codec, data, reason TEXT NOT NULL)""",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {FILE_VERSION}",
)
_WRITER_SETTINGS = (
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",  # on macOS a plain fsync stops at the drive's cache
    "PRAGMA wal_autocheckpoint = 0",  # the writer does it after its callers have their answer
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA cache_size = -16384",
)
_MAGIC = b"SQLite format 3\0"
_OWNER = slice(68, 72)  # where SQLite keeps whose file it is; of a new file that is still in its write-ahead log
_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


class FolderLock:
    """Keeps other processes from writing to the folder's log while it is held."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> None:
        deadline = 0.0
        while not self._taken():
            now = time.monotonic()
            deadline = deadline or now + PATIENCE
            if now > deadline:
                raise StoreError(f"the log in {self._folder} is held by another process for over {PATIENCE:g} s")
            time.sleep(0.0005)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        fcntl.flock(self._handle, fcntl.LOCK_UN)

    def close(self) -> None:
        """Release the folder for good."""
        os.close(self._handle)

    def _taken(self) -> bool:
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in {errno.EWOULDBLOCK, errno.EINTR}:
                raise
            return False
        return True


def identity(path: Path) -> tuple[int, int] | None:
    """What differs between the file at this path and another that takes its place; None where there is none."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def is_log(head: bytes) -> bool:
    """Whether a file that begins with these bytes is a database of ours, or a new one without an owner yet."""
    return head.startswith(_MAGIC) and head[_OWNER] in (APPLICATION_ID.to_bytes(4), bytes(4))


def expect_log(path: Path) -> None:
    """Raise StoreError unless there is a log in this file that can be read."""
    with closing(open_reader(path)) as connection, telling(path, "opened"):
        if _expect_ours(connection, path) == 0:
            raise StoreError(f"{path} is empty: nothing was ever logged there")
        _expect_whole(connection)


def open_writer(path: Path) -> sqlite3.Connection:
    """A connection that may write, to a file that is there and ready; the caller holds the folder's lock."""
    with telling(path, "opened"):
        _expect_plain(path)
        _make_private(path)
        connection = _connect(path, "rw")
        try:
            _prepare(connection, path)
            _reserve(path.with_name(path.name + "-wal"))
        except BaseException:
            connection.close()
            raise
    return connection


def open_reader(path: Path) -> sqlite3.Connection:
    """A connection that can only read."""
    with telling(path, "opened"):
        _expect_plain(path)
        return _connect(path, "ro")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All of what is done inside, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # after some errors SQLite has rolled back already
            connection.execute("ROLLBACK")
        raise


@contextmanager
def telling(path: Path, what: str) -> Iterator[None]:
    """Turn errors of the disk and of SQLite into ours."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise explained(error, path, what) from error


def explained(error: BaseException, path: Path, what: str) -> StoreError:
    """An error of ours with the file, the cause and the way out."""
    if primary_code(error) in _DAMAGE:
        way_out = "`ctxpager check --repair` mends what it can; a file moved away is replaced by a new log"
        return StoreCorrupt(f"{path} is damaged or no log of ours ({error}): {way_out}")
    return StoreError(f"{path} could not be {what}: {error}")


def primary_code(error: BaseException) -> int:
    """SQLite's basic error code, or 0 for errors that are not SQLite's."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _make_private(path: Path) -> None:
    """See to it that only the user can read the file, before anything is in it."""
    # An existing file is never opened here: closing it would release the locks that SQLite holds on it in this process.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        _set_aside(path.with_name(path.name + "-wal"))
        sync(path.parent)
        sync(path.parent.parent)
    for file in _files(path):
        with suppress(FileNotFoundError):
            file.chmod(0o600)


def _files(path: Path) -> list[Path]:
    """The log's file and those that SQLite puts beside it."""
    return [path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal"))]


def _expect_plain(path: Path) -> None:
    """Raise StoreError where one of the log's files is a link or no file: it could make us write to any other.

    The folder itself may be a link: that is the user's.
    """
    for file in _files(path):
        with suppress(FileNotFoundError):
            mode = file.lstat().st_mode
            if not stat.S_ISREG(mode):
                what = "a symbolic link" if stat.S_ISLNK(mode) else "not a file"
                raise StoreError(f"{file} is {what}, and the log is kept in plain files only: move it away")


def _set_aside(wal: Path) -> None:
    """Move the write-ahead log of a file that is gone away: SQLite would write its pages into the new one."""
    with suppress(FileNotFoundError):
        wal.rename(wal.with_name(wal.name + ".orphaned"))
    with suppress(FileNotFoundError):
        wal.with_name(wal.name.removesuffix("-wal") + "-shm").unlink()


def _reserve(wal: Path) -> None:
    """Give the write-ahead log its room at once: flushing a file that also grows takes about half as long again.

    Zeros behind the last frame are no frames to SQLite. They are appended, so that no frame is touched.
    """
    with suppress(OSError):  # without it the log works as well, only slower
        handle = os.open(wal, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.write(handle, bytes(max(WAL_BYTES - os.fstat(handle).st_size, 0)))
            os.fsync(handle)
        finally:
            os.close(handle)


def sync(folder: Path) -> None:
    """Have what was made or renamed in a folder on the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    address = f"{(path.parent.resolve() / path.name).as_uri()}?mode={mode}"
    return sqlite3.connect(address, uri=True, timeout=PATIENCE, isolation_level=None, check_same_thread=False)


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    version = _expect_ours(connection, path)
    connection.execute(f"PRAGMA page_size = {PAGE}")  # of a new file; before it becomes one with a write-ahead log
    journal = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if journal != "wal":
        raise StoreError(f"{path} could not be opened: its file system allows no write-ahead log (mode {journal})")
    for setting in _WRITER_SETTINGS:
        connection.execute(setting)
    if version == 0:
        with transaction(connection):
            for statement in _SCHEMA:
                connection.execute(statement)
    _expect_whole(connection)


def _expect_whole(connection: sqlite3.Connection) -> None:
    """Read both ends of the file: if it was cut short or overwritten, this fails, rather than the first call."""
    connection.execute("SELECT max(seq), max(data) FROM (SELECT seq, data FROM events ORDER BY seq DESC LIMIT 1)")
    connection.execute("SELECT max(id), max(data) FROM (SELECT id, data FROM blobs ORDER BY id DESC LIMIT 1)")


def _expect_ours(connection: sqlite3.Connection, path: Path) -> int:
    """The file's format version, 0 for an empty file; raises StoreError for one that this version must not write."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    owner: int = connection.execute("PRAGMA application_id").fetchone()[0]
    empty = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0
    if owner != APPLICATION_ID and not empty:
        raise StoreError(f"{path} is another program's database; move it away or choose another data folder")
    if version > FILE_VERSION:
        raise StoreError(f"{path} has format {version}, this ctxpager reads up to {FILE_VERSION}: upgrade ctxpager")
    return version
