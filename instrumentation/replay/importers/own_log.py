"""Reads our own log: the SQLite file that the proxy writes."""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from instrumentation.accounting.ledger import sums
from instrumentation.replay import from_log
from instrumentation.replay.importers._lines import Problems
from instrumentation.replay.recording import Recording
from pager.errors import StoreError
from pager.log.stores.sqlite.store import Store
from pager.pricing.rates import Models
from pager.wire.dialects import load as load_dialect

MAGIC = b"SQLite format 3\x00"
OURS = b"ctxp"
_OWNER = slice(68, 72)  # where SQLite keeps whose file it is, which of a new file is still in its write-ahead log


@cache
def _models() -> Models:
    """The shipped table of models: of it only the lifetimes of caches are needed."""
    return Models.load()


class Importer:
    """All sessions of a log."""

    def detect(self, head: Sequence[bytes]) -> bool:
        """The file is a database, and not another program's."""
        begin = b"".join(head)
        return begin.startswith(MAGIC) and begin[_OWNER] in (OURS, bytes(4))

    def read(self, path: Path, problems: Problems) -> Iterator[Recording]:
        """Every session, one or more recordings each."""
        problems.size += path.stat().st_size
        try:
            store = Store(path)
        except StoreError as error:
            problems.file(path, str(error))
            return
        try:
            for session in from_log.names(store):
                yield from self._session(store, session, path, problems)
        finally:
            store.close()

    def _session(self, store: Store, session: str, path: Path, problems: Problems) -> list[Recording]:
        try:
            return sums.recordings(store, session, _models(), load_dialect)
        except StoreError as error:
            problems.file(path, f"session {session}: {error}")
            return []
