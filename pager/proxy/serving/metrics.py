"""Counts what the proxy does, for Prometheus.

Counting is a few additions to plain numbers, all in the event loop's thread, so that a call hardly notices; names,
types and labels come in when somebody asks. Every label has a bounded set of values: what a client can choose freely,
the model's name, is kept for so many and is ``other`` after that. ``docs/metrics.md`` has the table that users build
on; a test keeps it and this page the same.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from pager.log.bypass import BypassReason
from pager.log.events import (
    AnswerFinished,
    Bypassed,
    Event,
    LegFinished,
    RepackCause,
    Repacked,
    SessionOpened,
)
from pager.proxy.attempt import Attempt
from pager.proxy.fail_open import FailOpen
from pager.values import Usage

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

PREFIX = "ctxpager_"
MODELS = 50
"""How many models are told apart."""

LONGEST_NAME = 100  # characters of a model's name
OTHER = "other"
SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600)
"""Bounds for what a model takes: an answer begins within a second or so and may go on for minutes."""

MOMENTS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.25, 1)
"""Bounds for what we take ourselves: milliseconds."""

CAUSES = frozenset(RepackCause)
"""How far a call came that brought no whole answer; ``answered`` is the outcome of all others."""

_REASONS = frozenset(BypassReason)
Labels = tuple[str, ...]
Counts = defaultdict[Labels, int]


class Described(NamedTuple):
    """A metric in words: its name without the prefix, what it counts, and its labels."""

    name: str
    words: str
    labels: Labels = ()


COUNTERS = (
    Described("calls", "Calls that have ended, by how.", ("dialect", "outcome", "status")),
    Described("client_bytes", "Bytes of the requests of calls, as clients sent them.", ("dialect",)),
    Described("upstream_bytes", "Bytes of the requests that went upstream for them.", ("dialect",)),
    Described("tokens", "Tokens that providers reported, by kind.", ("kind", "model")),
    Described("sessions", "Sessions that began."),
    Described("hidden_legs", "Requests inside calls that no client saw."),
    Described("pages_in", "Pages that models asked for."),
    Described("pages_unknown", "Pages that models asked for and that there are not."),
    Described("repacks", "Changes of prompts before their end.", ("cause",)),
    Described("pages_evicted", "Pages that left a prompt.", ("cause",)),
    Described("schema_faults", "Tools sent short that models asked for in full."),
    Described("corrected_calls", "Calls of tools that were sent back to the model, by what was wrong.", ("kind",)),
    Described("bypassed", "Calls that went out without something of ours.", ("reason",)),
)
TIMES = (
    Described("first_byte_seconds", "From a call's first byte to that of its answer.", ("dialect",)),
    Described("call_seconds", "From a call's first byte to the end of its answer.", ("dialect",)),
    Described("added_seconds", "From the last byte of a request to its going upstream.", ("dialect",)),
)
UNDER_WAY = Described("calls_under_way", "Calls that have not ended.", ("dialect",))
STANDING = (
    Described("failed_steps", "Steps of ours that failed, after which the call went on without."),
    Described("log_failures", "Writes to the log that failed."),
    Described("log_up", "Whether the last write to the log succeeded."),
    Described("log_queue", "Writes to the log that are waiting."),
    Described("hot_sessions", "Sessions that are in memory."),
)
GROWING = frozenset({"failed_steps", "log_failures"})
"""Those of ``STANDING`` that only ever grow."""


class Standing(NamedTuple):
    """What others know at the moment of asking; as ``STANDING`` describes it."""

    failed_steps: int = 0
    log_failures: int = 0
    log_up: bool = False
    log_queue: int = 0
    hot_sessions: int = 0


class Times:
    """How many times fell below each bound, and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        """Note one."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """The bounds, each with how many were at most that."""
        names = [*(str(float(bound)) for bound in self.bounds), "+Inf"]
        return list(zip(names, accumulate(self.counts), strict=True))


class Metrics:
    """What was counted so far."""

    def __init__(self) -> None:
        self.counts: dict[str, Counts] = {one.name: defaultdict(int) for one in COUNTERS}
        self.times: dict[str, defaultdict[str, Times]] = {one.name: defaultdict(Times) for one in TIMES}
        self.times["added_seconds"] = defaultdict(lambda: Times(MOMENTS))
        self.under_way: defaultdict[str, int] = defaultdict(int)
        self._models: dict[str, str] = {}
        self._telling: dict[type[Event], Callable[[str, Any], None]] = {
            SessionOpened: lambda _, __: self._add("sessions"),
            AnswerFinished: lambda model, event: self._tokens(model, event.usage),
            LegFinished: self._leg,
            Repacked: self._repack,
            Bypassed: lambda _, event: self.bypassed(event.reason) if event.reason != BypassReason.NOT_LOGGED else None,
        }

    # ---- on the way of a call

    def begun(self, dialect: str) -> None:
        """A call has come in."""
        self.under_way[dialect] += 1

    def ended(self, dialect: str, size: int, attempt: Attempt) -> None:
        """A call of so many bytes has ended, one way or another."""
        self.under_way[dialect] -= 1
        status = f"{attempt.status // 100}xx" if attempt.status else "none"
        self._add("calls", dialect, attempt.phase or "answered", status)
        self._add("client_bytes", dialect, by=size)
        self._add("upstream_bytes", dialect, by=attempt.sent)
        self.times["call_seconds"][dialect].add(perf_counter() - attempt.started)
        if attempt.first_byte:
            self.times["first_byte_seconds"][dialect].add(attempt.first_byte - attempt.started)
        if attempt.went_out:
            self.times["added_seconds"][dialect].add(attempt.went_out - attempt.read)

    def happened(self, model: str, events: Iterable[Event]) -> None:
        """These events of a call to this model are facts now."""
        for event in events:
            tell = self._telling.get(type(event))
            if tell is not None:
                tell(model, event)

    def bypassed(self, reason: str) -> None:
        """A call went out without something of ours."""
        self._add("bypassed", reason if reason in _REASONS else OTHER)

    @property
    def bypasses(self) -> int:
        """How often a call went out without something of ours, for whatever reason."""
        return sum(self.counts["bypassed"].values())

    def _add(self, name: str, *labels: str, by: int = 1) -> None:
        self.counts[name][labels] += by

    def _tokens(self, model: str, usage: Usage | None) -> None:
        if usage is not None:
            name = self._model(model)
            for kind in ("input", "cached", "written", "output"):
                self._add("tokens", kind, name, by=getattr(usage, kind))

    def _leg(self, model: str, leg: LegFinished) -> None:
        self._tokens(model, leg.usage)
        self._add("hidden_legs")
        self._add("pages_in", by=len(leg.pages))
        self._add("pages_unknown", by=len(leg.unknown))
        self._add("schema_faults", by=len(leg.schemas))
        self._add("corrected_calls", "invalid", by=len(leg.invalid))
        self._add("corrected_calls", "imitated", by=leg.imitated)

    def _repack(self, _: str, repacked: Repacked) -> None:
        cause = repacked.cause if repacked.cause in CAUSES else OTHER
        self._add("repacks", cause)
        self._add("pages_evicted", cause, by=len(repacked.pages))

    def _model(self, name: str) -> str:
        """A model's name as a label; clients choose it, so it may be anything, and there may be any number."""
        known = self._models.get(name)
        if known is None:
            if len(self._models) >= MODELS:
                return OTHER
            shown = name[:LONGEST_NAME].encode("utf-8", "replace").decode()
            known = self._models[name] = shown or "unknown"
        return known

    # ---- for whoever asks

    def text(self, standing: Standing, accept: str = "") -> tuple[str, bytes]:
        """Everything in a format that the asker accepts, after its content type."""
        from prometheus_client import CollectorRegistry  # takes a while to load, and most proxies are never asked
        from prometheus_client.exposition import choose_encoder

        registry = CollectorRegistry()
        registry.register(_Collector(self, standing))
        encode, content_type = choose_encoder(accept)
        return content_type, encode(registry)


class Meter:
    """Counts for the proxy, and never fails a call: what goes wrong in counting is left out."""

    def __init__(self, metrics: Metrics | None = None, fail_open: FailOpen | None = None) -> None:
        self._metrics = metrics or Metrics()
        self._fail_open = fail_open or FailOpen()

    @contextmanager
    def call(self, dialect: str, size: int, attempt: Attempt) -> Iterator[None]:
        """Count a call of so many bytes that was read just now, however it ends."""
        attempt.read = perf_counter()
        with self._fail_open():
            self._metrics.begun(dialect)
        try:
            yield
        finally:
            with self._fail_open():
                self._metrics.ended(dialect, size, attempt)

    def happened(self, model: str, events: Iterable[Event]) -> None:
        """Count what these events tell of a call to this model."""
        with self._fail_open():
            self._metrics.happened(model, events)

    def bypassed(self, reason: str) -> None:
        """Count a call that went out without something of ours."""
        with self._fail_open():
            self._metrics.bypassed(reason)


class _Collector:
    """The numbers of one moment as Prometheus' library wants them."""

    def __init__(self, metrics: Metrics, standing: Standing) -> None:
        self._metrics = metrics
        self._standing = standing

    def collect(self) -> Iterator["Metric"]:
        """All families."""
        yield from (_counter(one, self._metrics.counts[one.name]) for one in COUNTERS)
        yield from (_histogram(one, self._metrics.times[one.name]) for one in TIMES)
        yield _gauge(UNDER_WAY, {(dialect,): number for dialect, number in self._metrics.under_way.items()})
        for one in STANDING:
            made = _counter if one.name in GROWING else _gauge
            yield made(one, {(): int(getattr(self._standing, one.name))})


def _counter(one: Described, counts: Mapping[Labels, int]) -> "Metric":
    from prometheus_client.metrics_core import CounterMetricFamily

    family = CounterMetricFamily(PREFIX + one.name, one.words, labels=one.labels)
    for labels in counts if one.labels else [()]:
        family.add_metric(labels, counts.get(labels, 0))
    return family


def _gauge(one: Described, counts: Mapping[Labels, int]) -> "Metric":
    from prometheus_client.metrics_core import GaugeMetricFamily

    family = GaugeMetricFamily(PREFIX + one.name, one.words, labels=one.labels)
    for labels, number in counts.items():
        family.add_metric(labels, number)
    return family


def _histogram(one: Described, times: Mapping[str, Times]) -> "Metric":
    from prometheus_client.metrics_core import HistogramMetricFamily

    family = HistogramMetricFamily(PREFIX + one.name, one.words, labels=one.labels)
    for dialect, its in times.items():
        family.add_metric((dialect,), its.buckets(), its.sum)
    return family
