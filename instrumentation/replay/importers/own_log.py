"""Reads our own log, where a store keeps it in a file."""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from instrumentation.accounting.ledger import sums
from instrumentation.replay import recording_from_log
from instrumentation.replay.importers import LogFormat
from instrumentation.replay.log_lines import Problems, head
from instrumentation.replay.recording import Recording
from pager.errors import StoreError
from pager.log.stores import open_store, url_of_file
from pager.pricing.rates import Models
from pager.wire.dialects import load as load_dialect


@cache
def _models() -> Models:
    """The shipped table of models: of it only the lifetimes of caches are needed."""
    return Models.load()


class Importer(LogFormat):
    """All sessions of a log."""

    def detect(self, head: Sequence[bytes]) -> bool:
        """The file is of a store of ours."""
        return bool(url_of_file(Path(), b"".join(head)))

    def read(self, path: Path, problems: Problems) -> Iterator[Recording]:
        """Every session, one or more recordings each."""
        problems.size += path.stat().st_size
        try:
            store = open_store(url_of_file(path, b"".join(head(path))), read_only=True)
        except StoreError as error:
            problems.file(path, str(error))
            return
        try:
            for session in recording_from_log.names(store):
                try:
                    recordings = sums.recordings(store, session, _models(), load_dialect)
                except StoreError as error:
                    problems.file(path, f"session {session}: {error}")
                else:
                    yield from recordings
        finally:
            store.close()
