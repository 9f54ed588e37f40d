"""The self-check of a log: the store's own verification, then every call put together again and proven."""

from dataclasses import replace

from instrumentation.prompts import sent
from pager.errors import StoreCorrupt
from pager.store import Check, Store


def check(store: Store, *, repair: bool) -> Check:
    """What the store finds wrong with itself, and every call whose prompt can't be rebuilt to the same bytes."""
    found = store.check(repair=repair)
    return replace(found, problems=(*found.problems, *_unprovable(store)))


def _unprovable(store: Store) -> list[str]:
    def fetch(digest: bytes) -> bytes:
        blob = store.blob(digest)
        if blob is None:
            raise StoreCorrupt(f"content {digest.hex()} is missing")
        return blob

    problems: list[str] = []
    calls = sent(store.events())
    while True:
        try:
            call = next(calls, None)
            if call is None:
                return problems
            call.body(fetch)
        except StoreCorrupt as error:
            problems.append(str(error))
