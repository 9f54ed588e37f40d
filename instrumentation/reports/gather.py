"""Gathers what a report is about: the stories of the sessions that are meant, and their ledger."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from instrumentation.accounting.call_addresses import meant
from instrumentation.accounting.ledger.sums import Ledger, ledger, story
from instrumentation.accounting.story import CallStory, PageStory, Story
from pager.errors import ConfigError, StoreCorrupt
from pager.log.store import Store, Stored
from pager.pricing.rates import Models
from pager.wire.dialect import Dialect

FIRST_LOOK = 1_000
"""The newest answers that are looked at first for those since a time; more if they don't reach back so far."""


class Wanted(NamedTuple):
    """What a user asks for: a session by its name, or all; calls from a time on; what to sum them up by."""

    session: str = ""
    since: float = 0.0
    by: str = ""
    with_content: bool = False


class Report(NamedTuple):
    """What was found; ``overview`` if a session was asked for and nothing to sum it up by.

    ``unread`` are the sessions whose log is damaged, with what is wrong.
    """

    stories: Sequence[Story]
    ledger: Ledger
    overview: bool = False
    unread: Sequence[str] = ()
    with_content: bool = False


def gather(store: Store, wanted: Wanted, models: Models, load_dialect: Callable[[str], Dialect]) -> Report:
    """The report on what is wanted; raises ConfigError where there is nothing to report on."""
    stories, unread = [], []
    for name in _names(store, wanted):
        try:
            session_story = story(store, name, models, load_dialect, with_content=wanted.with_content)
        except StoreCorrupt as error:
            if wanted.session:
                raise
            unread.append(f"{name}: {error}")
        else:
            stories.append(since(session_story, wanted.since))
    found = [one for one in stories if one.calls]
    if not found:
        damaged = f"; {len(unread)} sessions can't be read, run `ctxpager check`" if unread else ""
        raise ConfigError(f"there is no answered call to report on{damaged}")
    by = wanted.by or ("call" if wanted.session else "session")
    return Report(found, ledger(found, by), bool(wanted.session) and not wanted.by, unread, wanted.with_content)


def _names(store: Store, wanted: Wanted) -> list[str]:
    """The sessions that are meant, those that began first before the others."""
    if wanted.session:
        return [meant(store, wanted.session)]
    if not wanted.since:
        return [row.session for row in reversed(store.sessions())]
    return list(dict.fromkeys(row.session for row in reversed(_answers(store, wanted.since))))


def _answers(store: Store, since: float) -> list[Stored]:
    """The answers from a time on, newest first."""
    looked = FIRST_LOOK
    while len(rows := store.recent("AnswerFinished", looked)) == looked and rows[-1].at >= since:
        looked *= 8
    return [row for row in rows if row.at >= since]


def since(session_story: Story, start: float) -> Story:
    """The story from a time on: its later calls, and the pages that are in them."""
    kept = [at for at, call in enumerate(session_story.calls) if call.at >= start]
    if len(kept) == len(session_story.calls):
        return session_story
    calls: list[CallStory] = [session_story.calls[at] for at in kept]
    return msgspec.structs.replace(session_story, calls=calls, pages=list(_clipped(session_story.pages, kept)))


def _clipped(pages: Sequence[PageStory], kept: Sequence[int]) -> Iterator[PageStory]:
    for page in pages:
        states = "".join([page.states[at] for at in kept])
        if states.strip("."):
            yield msgspec.structs.replace(page, states=states)
