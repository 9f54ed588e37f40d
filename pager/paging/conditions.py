"""What a request is planned under: prices, window and reserve; and whether it can be paged at all."""

import re
from dataclasses import replace
from typing import NamedTuple

from pager.paging.credit import CreditLimits
from pager.paging.pages.page import GRACE
from pager.paging.pages.page_table import PageTable
from pager.paging.planner import Terms
from pager.paging.priors import Experience
from pager.pricing.mark_cache import HOUR
from pager.pricing.prices import Prices
from pager.pricing.provider_cache import CacheKind, uncached
from pager.pricing.rates import Models
from pager.request_values import Request, Span
from pager.wire.dialect import Dialect
from pager.wire.dialects import load as load_dialect
from pager.wire.stitching import ToolSlot

RESERVE = 16_000
"""Tokens left for the answer where neither the request nor the table of models says how many."""

LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
DAY = 86_400.0
NOWHERE = Span(0, 0)
_RETENTION = re.compile(rb'"24h"')  # OpenAI keeps a prompt for a day if it is asked to
_WHOLE = re.compile(rb"\d{1,9}")
# How harnesses ask for a summary of the whole history: Claude Code and others in words, Codex by what it is.
_TEXT_ONLY = re.compile(rb"respond with text only\W{1,4}do not call any tools", re.IGNORECASE)
_COMPACTION = re.compile(rb'request_kind\\*":\s*\\*"compaction')


class Caller(NamedTuple):
    """Whose session it is, and the name of the client program."""

    tenant: str = ""
    harness: str = ""


def terms_of(
    request: Request,
    table: PageTable,
    models: Models,
    known: Experience,
    *,
    caller: Caller,
    marks: bool,
    grace: int = GRACE,
) -> Terms:
    """What a call is planned under; what was observed of a provider's cache overrides what is documented.

    ``table`` is the page table of its branch, ``marks`` whether we mark what shall be cached, a new page stays
    for ``grace`` calls. Where no mark names a lifetime, a cache of the tenant's that outlived the documented one is
    believed.
    """
    model, cache = models.find(request.model), models.cache(request.model)
    prices = models.prices(request.model)
    marked = load_dialect(request.dialect).marks_cache
    by_marks = marked and (models.fixed is not None or cache.kind is CacheKind.MARKED or not model.known)
    if by_marks:
        prices = marked_prices(prices, table)
    elif prices.ttl_seconds:
        asked = _RETENTION.search(request.body, *request.members.get("prompt_cache_retention", NOWHERE))
        asked = asked or _RETENTION.search(table.members.get("prompt_cache_retention", "").encode())
        seen = known.lifetime(caller.tenant, request.dialect, request.model)
        prices = replace(prices, ttl_seconds=max(prices.ttl_seconds, seen, DAY if asked else 0.0))
    if models.fixed is None:
        served = cache.serves(marked=marks and marked) or table.evidence.held > 0
        if not served:  # looked for only here, as it takes a while in a long body
            served = cache.serves(marked=b'"cache_control"' in request.body)
        prices = table.evidence.believed(prices if served else uncached(prices))
    elif prices.read < 1.0:  # a list that the user gave; a cache that outlived it is a fact
        prices = replace(prices, ttl_seconds=max(prices.ttl_seconds, table.evidence.held))
    found = terms_under(prices, models, request.model, asked_for(request), table.windows.get(request.model, 0))
    by_marks = by_marks and prices.read < prices.write
    return replace(found, experience=known, **caller._asdict(), grace=grace, by_marks=by_marks)


def terms_under(prices: Prices, models: Models, name: str, asked: int, window: int = 0) -> Terms:
    """What a call to a model is planned under at these prices.

    ``asked`` are the tokens that the client leaves for the answer, 0 if it does not say.
    """
    model = models.find(name)
    window = window or model.window
    reserve = min(asked or min(model.output_limit or RESERVE, RESERVE), window // 2)
    return Terms(prices, window, reserve, model.binds_thinking, models.cache(name).minimum)


def lent(terms: Terms, credit: float | None, limits: CreditLimits | None, dollars: float) -> Terms:
    """The same terms with the session's credit, in dollars; ``dollars`` is what one uncached input token costs.

    Without ``limits`` there is none, and the session pays for itself.
    """
    if limits is None:
        return terms
    return replace(terms, credit=(credit or 0.0) / dollars, session_share=limits.session_share)


def marked_prices(prices: Prices, table: PageTable) -> Prices:
    """The prices where a prompt is cached at marks, for the lifetime that is granted or, failing that, asked for.

    Nothing of the history is cached for a client that marks only what comes before it.
    """
    if prices.read >= prices.write:
        return prices
    if table.client_marks and not table.asked_lifetime:
        return uncached(prices)
    if (table.evidence.granted or table.asked_lifetime) >= HOUR:
        return replace(prices, write=prices.write_long, ttl_seconds=HOUR)
    return prices


def tool_slot_of(dialect: Dialect, request: Request) -> ToolSlot | str:
    """Where a request takes the tool that brings pages back; in words why it can't be paged, where it can't."""
    return summary_asked(request) or dialect.tool_slot(request)


def summary_asked(request: Request) -> str:
    """Why a request must see its whole history: it asks for a summary of it. Empty if it does not."""
    metadata = request.members.get("client_metadata")
    if metadata is not None and _COMPACTION.search(request.body, metadata.start, metadata.end):
        return "a compaction"
    return "a summary is asked for" if _TEXT_ONLY.search(request.items[-1]) else ""


def asked_for(request: Request) -> int:
    """The tokens that the client leaves for the answer; 0 if it does not say."""
    for name in LIMITS:
        span = request.members.get(name)
        if span is not None and _WHOLE.fullmatch(request.body, span.start, span.end):
            return int(request.body[span.start : span.end])
    return 0
