"""Finds the sessions that somebody names: files and folders of recordings, and sessions of the log."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from instrumentation.accounting.call_addresses import named
from instrumentation.accounting.ledger import sums
from instrumentation.replay import recording_files
from instrumentation.replay.recording import Recording
from pager.errors import ConfigError
from pager.log.store import Store, Stored
from pager.pricing.rates import Models
from pager.wire.dialects import load as load_dialect

ALL = "all"
"""Names every session of the log."""


def find(places: Sequence[str], open_log: Callable[[], Store], models: Models) -> Iterator[Path | Recording]:
    """Every session named by a path, an id, its beginning, what its client calls it, or ``all``.

    The log is opened if one is in it. What a paged session of it would have cost otherwise is worked out under
    these prices.
    """
    of_log = [name for name in places if not Path(name).exists()]
    for name in places:
        if name not in of_log:
            yield from _files(Path(name))
    if of_log:
        store = open_log()
        try:
            opened = store.sessions()
            for session in dict.fromkeys(one for name in of_log for one in _meant(name, opened)):
                yield from sums.recordings(store, session, models, load_dialect)
        finally:
            store.close()


def _files(place: Path) -> list[Path]:
    found = recording_files.files(place)
    if not found:
        raise ConfigError(
            f"{place}: there are no recordings (files ending in {' or '.join(recording_files.SUFFIXES)}) in it"
        )
    return found


def _meant(name: str, opened: Sequence[Stored]) -> Sequence[str]:
    """The sessions of the log that a name means, the oldest first; ``opened`` are all beginnings, the newest first."""
    known = list(dict.fromkeys(row.session for row in reversed(opened)))
    if name == ALL:
        return known
    found = named(name, opened)
    if len(found) == 1:
        return found
    if found:
        raise ConfigError(f"{name}: {len(found)} sessions begin like that, such as {', '.join(found[:3])}")
    raise ConfigError(f"{name}: is neither a file or folder of recordings nor one of the log's {len(known)} sessions")
