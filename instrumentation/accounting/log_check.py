"""The self-check of a log: the store's own verification, then every call put together again and proven."""

from collections.abc import Iterator
from dataclasses import replace

from instrumentation.accounting.logged_prompts import client_calls
from pager.errors import StoreCorrupt
from pager.log.store import Check, Store


def check(store: Store, *, repair: bool) -> Check:
    """What the store finds wrong with itself, and every call whose prompt can't be rebuilt to the same bytes."""
    found = store.check(repair=repair)
    return replace(found, problems=(*found.problems, *_unprovable(store)))


def _unprovable(store: Store) -> Iterator[str]:
    seen: set[tuple[str, int, int, int]] = set()
    for call in client_calls(store.events()):
        spot = (call.session, call.call.branch, call.call.call, call.call.attempt)
        if spot in seen:
            yield f"event {call.seq}: call {spot[2]}, attempt {spot[3]} of branch {spot[1]} of {spot[0]} is there twice"
        seen.add(spot)
        try:
            call.body(store.blob)
        except (StoreCorrupt, ValueError) as error:
            yield str(error)
