"""Finds the sessions that somebody names: files and folders of recordings, and sessions of the log."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from instrumentation import ledger, logged, recordings
from instrumentation.calls import matching
from instrumentation.steps import Recording
from pager.dialects import load as load_dialect
from pager.errors import ConfigError
from pager.models import Table as Models
from pager.store import Store

ALL = "all"
"""Names every session of the log."""


def find(named: Sequence[str], open_log: Callable[[], Store], models: Models) -> Iterator[Path | Recording]:
    """Every session named by a path, an id, the beginning of an id, or ``all``; the log is opened if one is in it.

    What a paged session of the log would have cost otherwise is worked out under these prices.
    """
    of_log = [name for name in named if not Path(name).exists()]
    for name in named:
        if name not in of_log:
            yield from _files(Path(name))
    if of_log:
        store = open_log()
        try:
            known = logged.names(store)
            for session in dict.fromkeys(one for name in of_log for one in _meant(name, known)):
                yield from ledger.recordings(store, session, models, load_dialect)
        finally:
            store.close()


def _files(place: Path) -> list[Path]:
    found = recordings.files(place)
    if not found:
        raise ConfigError(
            f"{place}: there are no recordings (files ending in {' or '.join(recordings.SUFFIXES)}) in it"
        )
    return found


def _meant(name: str, known: Sequence[str]) -> Sequence[str]:
    """The sessions of the log that a name means."""
    if name == ALL:
        return known
    found = matching(name, known)
    if len(found) == 1:
        return found
    if found:
        raise ConfigError(f"{name}: {len(found)} sessions begin like that, such as {', '.join(found[:3])}")
    raise ConfigError(f"{name}: is neither a file or folder of recordings nor one of the log's {len(known)} sessions")
