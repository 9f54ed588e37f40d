"""Why a call did not find its prompt in the provider's cache, from what the log has of it and of the call before.

A call missed the cache where the provider read clearly less than the call before in its branch had left there, of what
both requests hold. What is new in a request can't have been cached and is no miss; nor is anything where the provider
says nothing of a cache, or has never cached anything of this session.

Where even the beginning that both requests share was not found, the cache had died: in a pause longer than it lives, or
because the provider dropped it. Where that was found, or there is none, the reason is the change after it: one of the
client's before one of ours, as the client's alone would have been enough.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from itertools import takewhile
from typing import NamedTuple

import msgspec

from instrumentation.accounting.billing import Prompt
from instrumentation.replay.prepared_recording import Prepared, PreparedCall
from pager.paging.pages.page_table import common_length
from pager.pricing.provider_cache import HIT_SHARE, MINIMUM, MISS_SHARE, Cache, CacheKind
from pager.pricing.rates import Models
from pager.request_values import Usage

SYSTEM = ("system", "developer")
"""The roles of messages that are a system prompt, at the beginning of a list of them."""

TOOLS = ("tools", "functions")
"""The settings that are tools; a change of all others is one of settings."""


class MissReason(StrEnum):
    """Why a call did not find its prompt in the provider's cache."""

    PAUSE = "pause"  # longer than the prompt was kept
    TOOLS = "tools"  # the client changed its tools
    MODEL = "model"  # the client changed the model
    SETTINGS = "settings"  # the client changed something else: the system prompt, thinking, effort, tool_choice
    HISTORY = "history"  # the client changed messages that it had sent before
    REPACK = "repack"  # ctxpager changed the prompt before its end
    SHORT = "short"  # below the size from which on the provider caches
    DROPPED = "dropped"  # the provider dropped it before its time
    UNKNOWN = "unknown"


PROVIDERS_WORDS: Mapping[str, MissReason] = {
    "model_changed": MissReason.MODEL,
    "tools_changed": MissReason.TOOLS,
    # Anthropic
    "system_changed": MissReason.SETTINGS,
    "messages_changed": MissReason.HISTORY,
    # OpenAI
    "prompt_cache_key_changed": MissReason.SETTINGS,
    "text_format_changed": MissReason.SETTINGS,
    "reasoning_effort_changed": MissReason.SETTINGS,
    "verbosity_changed": MissReason.SETTINGS,
    "service_tier_changed": MissReason.SETTINGS,
    "context_compacted": MissReason.HISTORY,
    "input_changed": MissReason.HISTORY,
}
"""What providers themselves say of a miss, if their client asks them; their other words decide nothing."""


class ClientHistory(NamedTuple):
    """The messages of a client's request: what each is known by, wherever its marks stand."""

    norms: Sequence[bytes] = ()
    lead: int = 0  # how many of them are its system prompt


class CachedRequest(NamedTuple):
    """A call, as a provider's cache sees it."""

    at: float
    model: str
    prompt: Prompt  # of the first request
    usage: Usage  # of the first request
    latest: Prompt  # of the last request: another one where there were hidden legs
    left: Usage  # of the last request
    settings: tuple[tuple[str, bytes], ...] = ()  # names and digests
    history: Callable[[], ClientHistory] = ClientHistory  # read only where there is a miss
    kept: float = 0.0  # when its prompt was last refreshed, 0 where it never was
    is_own: bool = True  # whether it is the client's own prompt
    is_marked: bool = False  # whether the client's cache marks ask for caching
    is_repacked: bool = False  # whether ctxpager changed the prompt before its end at this call
    word: str = ""  # the provider's own, on why it missed


class CacheMiss(NamedTuple):
    """What a call did not find in the cache."""

    reason: MissReason
    tokens: int  # that were left there, are in the prompt, and were not read from the cache
    pause: float  # seconds since the prompt was last sent
    lifetime: float  # seconds for which it was taken to be kept
    changed: tuple[str, ...] = ()  # names of the settings that changed
    word: str = ""  # the provider's own, where that is the reason


class Rest(NamedTuple):
    """Tokens of two requests, as the provider counts them: what the one left, and what the other repeats of it."""

    left: int
    shared: float  # at the beginning of both
    repeated: float  # anywhere in both


def says_of_cache(usage: Usage) -> bool:
    """Whether a provider has reported anything of a cache."""
    return usage.tells_cached or usage.cached > 0 or usage.written > 0


def has_cached(usage: Usage) -> bool:
    """Whether anything was read from a cache, or written to it."""
    return usage.cached > 0 or usage.written > 0


def left_cached(usage: Usage, cache: Cache) -> int:
    """The tokens that a request left in the cache; where writes are not counted, all of a large enough prompt."""
    if cache.kind is CacheKind.NONE:
        return 0
    if usage.written or cache.kind is CacheKind.MARKED:
        return usage.cached + usage.written
    return usage.input if usage.input >= cache.minimum else 0


def find_miss(before: CachedRequest, now: CachedRequest, cache: Cache, lifetime: float) -> CacheMiss | None:
    """What a call missed of what the call before it left in the cache, and why; None where it is no miss."""
    if not says_of_cache(now.usage):
        return None
    left = left_cached(before.left, cache)
    if left < MINIMUM:
        return _too_short(before, now, cache, lifetime)
    if now.usage.cached >= HIT_SHARE * left:
        return None
    rest = _rest(before, now, left)
    expected = min(rest.left, round(rest.repeated), now.usage.input)
    tokens = expected - now.usage.cached
    if tokens < MINIMUM or now.usage.cached >= HIT_SHARE * expected:
        return None
    changed, word = _changed(before, now), ""
    reason = _reason(before, now, rest, lifetime, changed)
    if reason is None:
        reason, word = _providers(now), now.word
    if reason is None:
        reason, word = _own(before, now, rest, changed), ""
    return CacheMiss(reason, tokens, _pause(before, now), lifetime, changed, word)


def _too_short(before: CachedRequest, now: CachedRequest, cache: Cache, lifetime: float) -> CacheMiss | None:
    """A prompt that was not cached because of its size; one that nobody caches is not told of."""
    last = before.left
    if has_cached(last) or now.usage.cached or not cache.serves(marked=before.is_marked):
        return None
    if not MINIMUM <= last.input < cache.minimum or before.model != now.model:
        return None
    tokens = min(round(_rest(before, now, last.input).repeated), last.input)
    return CacheMiss(MissReason.SHORT, tokens, _pause(before, now), lifetime) if tokens >= MINIMUM else None


def _pause(before: CachedRequest, now: CachedRequest) -> float:
    return max(0.0, now.at - max(before.at, before.kept))


def _rest(before: CachedRequest, now: CachedRequest, left: int) -> Rest:
    """What two requests have in common; where nothing changed but the end, all that was left.

    Marks move, so that the client's own messages are compared without them. Where something else changed, tokens are
    known by bytes alone: a beginning that was found for the most part is taken to have been found.
    """
    old, new = before.latest.keys, now.prompt.keys
    if before.is_own and now.is_own:
        old, new = [*old[:1], *before.history().norms], [*new[:1], *now.history().norms]
    length = common_length(old, new)
    if length == len(old):
        return Rest(left, left, left)
    scale, ends, known = now.usage.input / max(1, now.prompt.tokens), [0, *now.prompt.ends], set(old[length:])
    behind = sum(ends[at + 1] - ends[at] for at in range(length, len(new)) if new[at] in known)
    shared = scale * ends[length]
    if now.usage.cached >= MISS_SHARE * shared:
        shared = min(shared, now.usage.cached)
    return Rest(left, shared, shared + scale * behind)


def _is_edited(before: CachedRequest, now: CachedRequest) -> bool:
    """Whether the client changed messages that it had sent."""
    old = before.history().norms
    return common_length(old, now.history().norms) < len(old)


def _changed(before: CachedRequest, now: CachedRequest) -> tuple[str, ...]:
    """The names of the settings that differ; a system prompt among the messages is one, too."""
    old, new = dict(before.settings), dict(now.settings)
    names = [name for name in dict.fromkeys((*old, *new)) if old.get(name) != new.get(name)]
    if not (old and new):
        names = ["system"] if before.is_own and now.is_own and before.latest.first != now.prompt.first else []
    theirs, ours = before.history(), now.history()
    if "system" not in names and theirs.norms[: theirs.lead] != ours.norms[: ours.lead]:
        names.append("system")
    return tuple(names)


def _reason(
    before: CachedRequest, now: CachedRequest, rest: Rest, lifetime: float, changed: tuple[str, ...]
) -> MissReason | None:
    """The reasons that need nobody's word: another model has another cache, and a pause ends any."""
    if before.model != now.model:
        return MissReason.MODEL
    by_client = bool(changed) or _is_edited(before, now)
    is_gone = rest.shared >= MINIMUM or not by_client
    return MissReason.PAUSE if _pause(before, now) > lifetime and is_gone and not _found(now, rest) else None


def _found(now: CachedRequest, rest: Rest) -> bool:
    """Whether the provider found the beginning that both requests share, if there is one to speak of."""
    return rest.shared >= MINIMUM and now.usage.cached >= HIT_SHARE * min(rest.left, rest.shared)


def _providers(now: CachedRequest) -> MissReason | None:
    """The provider's own word; not where ctxpager changed the prompt, which it can't tell from the client."""
    return None if now.is_repacked or not now.is_own else PROVIDERS_WORDS.get(now.word)


def _own(before: CachedRequest, now: CachedRequest, rest: Rest, changed: tuple[str, ...]) -> MissReason:
    """The change that explains it, if there is one."""
    if any(name in TOOLS for name in changed):
        return MissReason.TOOLS
    if changed:
        return MissReason.SETTINGS
    if _is_edited(before, now):
        return MissReason.HISTORY
    if now.is_repacked or before.is_own != now.is_own:
        return MissReason.REPACK
    is_known = bool(before.settings and now.settings)  # logs of other programs don't say what was set
    return MissReason.DROPPED if is_known and not _found(now, rest) else MissReason.UNKNOWN


def cached_request(prepared: Prepared, call: PreparedCall, usage: Usage) -> CachedRequest:
    """A call of a recording with the client's own prompt, which was counted so."""
    step = call.step

    def history() -> ClientHistory:
        norms = prepared.items(call).norms
        roles = (prepared.dialect.decode(prepared.blobs[digest]).role for digest in call.items)
        return ClientHistory(norms, sum(1 for _ in takewhile(SYSTEM.__contains__, roles)))

    marked = prepared.lifetime(call) > 0
    return CachedRequest(
        at=step.at,
        model=step.model,
        prompt=call.prompt,
        usage=usage,
        latest=call.prompt,
        left=usage,
        settings=step.settings,
        history=history,
        is_marked=marked,
        word=step.cache_miss,
    )


class CacheMisses:
    """Follows the calls of a session, branch by branch, in the order in which they came."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self._latest: dict[int, CachedRequest | None] = {}
        self._caching: set[str] = set()

    def before(self, branch: int, parent: int | None) -> CachedRequest | None:
        """The call before the next one of a branch, or that of the branch it forks from."""
        return self._latest.get(branch if branch in self._latest or parent is None else parent)

    def add(self, branch: int, parent: int | None, now: CachedRequest | None, lifetime: float) -> CacheMiss | None:
        """Add a call; what it missed. None stands for one of which the provider reported nothing."""
        before = self.before(branch, parent)
        self._latest[branch] = now
        if now is None:
            return None
        if any(map(has_cached, (now.usage, now.left))):
            self._caching.add(now.model)
        cache = self._models.cache(now.model)
        if before is None or not lifetime or not (before.model in self._caching or before.left.input < cache.minimum):
            return None
        return find_miss(before, now, cache, lifetime)


# ---------------------------------------------------------------- money


def as_read(usage: Usage, tokens: int) -> Usage:
    """The same request, had so many more of its tokens been read from the cache: those that were written first."""
    more = max(0, min(tokens, usage.input - usage.cached))
    return _moved(usage, more)


def as_written(usage: Usage, tokens: int, *, hour: bool = False) -> Usage:
    """The same request, had so many of the tokens that it found cached been written instead.

    They live as long as what it wrote; where it wrote nothing, for an ``hour`` or less.
    """
    return _moved(usage, -max(0, min(tokens, usage.cached)), float(hour))


def _moved(usage: Usage, more: int, share: float = 0.0) -> Usage:
    """So many more tokens cached and as many fewer written; ``share`` of them for an hour, where none were written."""
    written = max(0, usage.written - more)
    if usage.written:
        share = min(usage.written_1h, usage.written) / usage.written
    long = round(share * written)
    return msgspec.structs.replace(
        usage,
        cached=usage.cached + more,
        written=written,
        written_1h=long,
        written_5m=written - long if usage.written_5m else 0,
    )
