"""Answers what the dashboard's page asks, from the log: each answer is a status and a body of JSON.

Text of a prompt is sent only where it may be: what pages hold and are about, and what errors say.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import orjson

from instrumentation.accounting.story import Story
from instrumentation.dashboard.index import SessionIndex
from instrumentation.reports import html_page as html
from pager.config.settings import Settings
from pager.errors import ConfigError, NotUnderstood, StoreError
from pager.host_names import is_loopback
from pager.log.store import Store
from pager.paging.planning_rules import PlanningRules
from pager.pricing.rates import Models, in_force
from pager.wire.dialects import load as load_dialect

AT_ONCE = 0.4  # seconds that the index may read before what it has is sent
KEPT = 3  # stories that are kept
PER_PAGE = 50
MOST_PER_PAGE = 500
HIDDEN = "what pages hold is shown only where the proxy listens on a loopback address"

Asked = Mapping[str, str]


class DashboardAnswer(NamedTuple):
    """What is answered: an HTTP status, and JSON; empty where nothing is new."""

    status: int
    body: bytes = b""


UNCHANGED = DashboardAnswer(204)


@dataclass(frozen=True, slots=True)
class _Kept:
    """A story as it was at an event of the log."""

    seq: int
    story: Story


class Answers:
    """Answers questions on the log of these settings."""

    def __init__(self, store: Store, settings: Settings, at_once: float = AT_ONCE) -> None:
        self._store = store
        self._at_once = at_once
        self._settings = settings
        self._with_content = is_loopback(settings.host)
        self._stories: OrderedDict[str, _Kept] = OrderedDict()
        self._routes: dict[str, Callable[[Asked], DashboardAnswer]] = {
            "sessions": self._sessions,
            "outline": self._outline,
            "story": self._story,
            "sums": self._sums,
            "why": self._why,
            "page": self._page,
        }

    def answer(self, what: str, asked: Asked) -> DashboardAnswer:
        """The answer to one question."""
        route = self._routes.get(what)
        if route is None:
            return _wrong(404, f"there is no {what}; there are {', '.join(self._routes)}")
        try:
            return route(asked)
        except (ConfigError, NotUnderstood) as error:
            return _wrong(404, str(error))
        except StoreError as error:
            return _wrong(503, str(error))
        except ValueError as error:
            return _wrong(400, str(error))

    @cached_property
    def _models(self) -> Models:
        return in_force(self._settings.prices, self._settings.models)

    @cached_property
    def _index(self) -> SessionIndex:
        return SessionIndex(self._models)

    def _sessions(self, asked: Asked) -> DashboardAnswer:
        """A page of the list of sessions."""
        whole = self._index.catch_up(self._store, self._at_once)
        if whole and asked.get("since") == str(self._index.seq):
            return UNCHANGED
        found = list(self._index.lines(asked.get("search", "")))
        first = max(0, int(asked.get("offset", "0")))
        limit = min(max(1, int(asked.get("limit", str(PER_PAGE)))), MOST_PER_PAGE)
        newest = self._store.recent("CallReceived", 1) if not whole else []
        body = {
            "seq": self._index.seq,
            "newest": newest[0].seq if newest else self._index.seq,
            "with_content": self._with_content,
            "found": len(found),
            "sums": self._index.sums(),
            "sessions": found[first : first + limit],
        }
        return DashboardAnswer(200, msgspec.json.encode(body))

    def _outline(self, asked: Asked) -> DashboardAnswer:
        from instrumentation.dashboard.outline import outline  # what only some questions need is loaded for those

        session, since = self._session(asked), int(asked.get("since", "0"))
        if since and next(iter(self._store.events(session, since)), None) is None:
            return UNCHANGED
        log = list(self._store.events(session))
        first = outline(session, log, self._models)
        return DashboardAnswer(200, _with_seq(log[-1].seq, html.values(first)))

    def _story(self, asked: Asked) -> DashboardAnswer:
        since = int(asked.get("since", "0"))
        kept = self._current_story(self._session(asked))
        return UNCHANGED if kept.seq == since else DashboardAnswer(200, _with_seq(kept.seq, html.values(kept.story)))

    def _sums(self, asked: Asked) -> DashboardAnswer:
        """What a session has cost, and what it would have cost."""
        from instrumentation.accounting.ledger.sums import ledger

        kept = self._current_story(self._session(asked))
        sums = ledger([kept.story]).total.sums
        known = not sums.unpriced
        body = {
            "seq": kept.seq,
            "saved": sums.saved,
            "cost_before": sums.cost_before,
            "dollars_saved": sums.dollars_saved if known else None,
        }
        return DashboardAnswer(200, orjson.dumps(body))

    def _page(self, asked: Asked) -> DashboardAnswer:
        """What a page holds."""
        if not self._with_content:
            return _wrong(403, HIDDEN)
        branch, name = int(asked.get("branch", "0")), asked.get("name", "")
        for page in self._current_story(self._session(asked)).story.pages:
            if (page.branch, page.name) == (branch, name):
                return DashboardAnswer(200, orjson.dumps({"about": page.about, "content": page.content}))
        return _wrong(404, f"branch {branch} has no page {name}")

    def _why(self, asked: Asked) -> DashboardAnswer:
        """What was decided at a call, and why."""
        from instrumentation.accounting.explain import explain
        from instrumentation.reports.explain import as_json

        session, rules = self._session(asked), PlanningRules.of(self._settings)
        told = self._current_story(session).story
        found = as_json(explain(self._store, session, asked.get("call", ""), rules, load_dialect, told=told))
        return DashboardAnswer(200, orjson.dumps(found if self._with_content else _without_text(found)))

    def _session(self, asked: Asked) -> str:
        """The session that is asked for; raises ConfigError where there is none of exactly this id."""
        session = asked.get("session", "")
        if not session or next(iter(self._store.events(session)), None) is None:
            raise ConfigError(f"there is no session {session!r}")
        return session

    def _current_story(self, session: str) -> _Kept:
        """The story of a session as it is now, made anew only if anything has happened in it."""
        from instrumentation.accounting.ledger.sums import story

        kept = self._stories.pop(session, None)
        newer = [row.seq for row in self._store.events(session, kept.seq if kept else 0)]
        if kept is None or newer:
            newest = story(self._store, session, self._models, load_dialect, with_content=self._with_content)
            kept = _Kept(newer[-1], newest)
        self._stories[session] = kept
        while len(self._stories) > KEPT:
            self._stories.popitem(last=False)
        return kept


def _wrong(status: int, message: str) -> DashboardAnswer:
    return DashboardAnswer(status, orjson.dumps({"error": message}))


def _with_seq(seq: int, story: str) -> bytes:
    return b'{"seq":%d,"story":%s}' % (seq, story.encode())


def _without_text(found: dict[str, Any]) -> dict[str, Any]:
    """An explanation without what pages are about, in stubs too, and what errors say."""
    logged = found["logged"]
    rows = [{**row, "about": ""} for row in found["rows"]]
    bypasses = [{**one, "detail": ""} for one in logged["bypasses"]]
    repacks = [{**one, "pages": [page[:1] for page in one.get("pages", ())]} for one in logged["repacks"]]
    return {**found, "rows": rows, "logged": {**logged, "bypasses": bypasses, "repacks": repacks}}
