"""Counts what the proxy does, for Prometheus.

Every label has a bounded set of values: the model's name, which a client can choose freely, is kept for ``MODELS`` of
them and is ``other`` after that. ``docs/metrics.md`` has the table that users build on; a test keeps both the same.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from pager.log.bypass_reasons import BypassReason
from pager.log.events import AnswerFinished, Bypassed, Event, LegFinished, RepackCause, Repacked, SessionOpened
from pager.proxy.attempt import Attempt
from pager.proxy.fail_open import FailOpen
from pager.request_values import Usage

PREFIX = "ctxpager_"
MODELS = 50  # that have a label of their own
LONGEST_NAME = 100  # characters of a model's name
OTHER = "other"
SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600)
"""Bounds for what a model takes: an answer begins within a second or so and may go on for minutes."""

MOMENTS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.25, 1)
"""Bounds for what we take ourselves: milliseconds."""

_CAUSES = frozenset(RepackCause)
_REASONS = frozenset(BypassReason)
disable_created_metrics()  # type: ignore[no-untyped-call]  # when a series began is of no use here


class ProxyState(NamedTuple):
    """What is not counted here, at the moment of a scrape."""

    failed_steps: int = 0
    log_failures: int = 0
    log_up: bool = False
    log_queue: int = 0
    hot_sessions: int = 0

    def collect(self) -> Iterator[Metric]:
        """These numbers as metrics."""
        steps = "Steps of ours that failed, after which the call went on without."
        yield CounterMetricFamily(f"{PREFIX}failed_steps", steps, self.failed_steps)
        yield CounterMetricFamily(f"{PREFIX}log_failures", "Writes to the log that failed.", self.log_failures)
        yield GaugeMetricFamily(f"{PREFIX}log_up", "Whether the last write to the log succeeded.", self.log_up)
        yield GaugeMetricFamily(f"{PREFIX}log_queue", "Writes to the log that are waiting.", self.log_queue)
        yield GaugeMetricFamily(f"{PREFIX}hot_sessions", "Sessions that are in memory.", self.hot_sessions)


class Metrics:
    """What was counted so far by one proxy."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._calls = self._counter("calls", "Calls that have ended, by how.", "dialect", "outcome", "status")
        self._client_bytes = self._counter(
            "client_bytes", "Bytes of the requests of calls, as clients sent them.", "dialect"
        )
        self._upstream_bytes = self._counter(
            "upstream_bytes", "Bytes of the requests that went upstream for them.", "dialect"
        )
        self._tokens = self._counter("tokens", "Tokens that providers reported, by kind.", "kind", "model")
        self._sessions = self._counter("sessions", "Sessions that began.")
        self._hidden_legs = self._counter("hidden_legs", "Requests inside calls that no client saw.")
        self._pages_in = self._counter("pages_in", "Pages that models asked for.")
        self._pages_unknown = self._counter("pages_unknown", "Pages that models asked for and that there are not.")
        self._repacks = self._counter("repacks", "Changes of prompts before their end.", "cause")
        self._pages_evicted = self._counter("pages_evicted", "Pages that left a prompt.", "cause")
        self._schema_faults = self._counter("schema_faults", "Tools sent short that models asked for in full.")
        self._corrected_calls = self._counter(
            "corrected_calls", "Calls of tools that were sent back to the model, by what was wrong.", "kind"
        )
        self._bypassed = self._counter("bypassed", "Calls that went out without something of ours.", "reason")
        self._first_byte_seconds = self._histogram(
            "first_byte_seconds", "From a call's first byte to that of its answer.", SECONDS
        )
        self._call_seconds = self._histogram(
            "call_seconds", "From a call's first byte to the end of its answer.", SECONDS
        )
        self._added_seconds = self._histogram(
            "added_seconds", "From the last byte of a request to its going upstream.", MOMENTS
        )
        under_way = "Calls that have not ended."
        self._under_way = Gauge(f"{PREFIX}calls_under_way", under_way, ["dialect"], registry=self._registry)
        self._models: dict[str, str] = {}
        self._counting: dict[type[Event], Callable[[str, Any], None]] = {
            SessionOpened: lambda _, __: self._sessions.inc(),
            AnswerFinished: lambda model, event: self._count_tokens(model, event.usage),
            LegFinished: self._count_leg,
            Repacked: self._count_repack,
            Bypassed: lambda _, event: self.bypassed(event.reason) if event.reason != BypassReason.NOT_LOGGED else None,
        }

    def _counter(self, name: str, words: str, *labels: str) -> Counter:
        return Counter(PREFIX + name, words, labels, registry=self._registry)

    def _histogram(self, name: str, words: str, bounds: tuple[float, ...]) -> Histogram:
        return Histogram(PREFIX + name, words, ["dialect"], registry=self._registry, buckets=bounds)

    def begun(self, dialect: str) -> None:
        """A call has come in."""
        self._under_way.labels(dialect).inc()

    def ended(self, dialect: str, size: int, attempt: Attempt) -> None:
        """A call with a request of this size has ended, one way or another."""
        self._under_way.labels(dialect).dec()
        status = f"{attempt.status // 100}xx" if attempt.status else "none"
        self._calls.labels(dialect, attempt.phase or "answered", status).inc()
        self._client_bytes.labels(dialect).inc(size)
        self._upstream_bytes.labels(dialect).inc(attempt.sent)
        self._call_seconds.labels(dialect).observe(perf_counter() - attempt.started)
        if attempt.first_byte:
            self._first_byte_seconds.labels(dialect).observe(attempt.first_byte - attempt.started)
        if attempt.went_out:
            self._added_seconds.labels(dialect).observe(attempt.went_out - attempt.read)

    def happened(self, model: str, events: Iterable[Event]) -> None:
        """Count these events of a call to this model."""
        for event in events:
            count = self._counting.get(type(event))
            if count is not None:
                count(model, event)

    def bypassed(self, reason: str) -> None:
        """A call went out without something of ours."""
        self._bypassed.labels(reason if reason in _REASONS else OTHER).inc()

    @property
    def bypasses(self) -> int:
        """How often a call went out without something of ours, for whatever reason."""
        return round(sum(sample.value for metric in self._bypassed.collect() for sample in metric.samples))

    def _count_tokens(self, model: str, usage: Usage | None) -> None:
        if usage is not None:
            name = self._model(model)
            for kind in ("input", "cached", "written", "output"):
                self._tokens.labels(kind, name).inc(getattr(usage, kind))

    def _count_leg(self, model: str, leg: LegFinished) -> None:
        self._count_tokens(model, leg.usage)
        self._hidden_legs.inc()
        self._pages_in.inc(len(leg.pages))
        self._pages_unknown.inc(len(leg.unknown))
        self._schema_faults.inc(len(leg.schemas))
        self._corrected_calls.labels("invalid").inc(len(leg.invalid))
        self._corrected_calls.labels("imitated").inc(leg.imitated)

    def _count_repack(self, _: str, repacked: Repacked) -> None:
        cause = repacked.cause if repacked.cause in _CAUSES else OTHER
        self._repacks.labels(cause).inc()
        self._pages_evicted.labels(cause).inc(len(repacked.pages))

    def _model(self, name: str) -> str:
        """A model's name as a label; clients choose it, so it may be anything, and there may be any number."""
        label = self._models.get(name)
        if label is None:
            if len(self._models) >= MODELS:
                return OTHER
            shown = name[:LONGEST_NAME].encode("utf-8", "replace").decode()
            label = self._models[name] = shown or "unknown"
        return label

    def text(self, standing: ProxyState, accept: str = "") -> tuple[str, bytes]:
        """The content type of a format that the asker accepts, and everything in it."""
        registry = CollectorRegistry()
        for counter in (self._registry, standing):
            registry.register(counter)
        encode, content_type = choose_encoder(accept)
        return content_type, encode(registry)


class Meter:
    """Counts for the proxy, and never fails a call: what can't be counted is left out."""

    def __init__(self, metrics: Metrics | None = None, fail_open: FailOpen | None = None) -> None:
        self._metrics = metrics or Metrics()
        self._fail_open = fail_open or FailOpen()

    @contextmanager
    def call(self, dialect: str, size: int, attempt: Attempt) -> Iterator[None]:
        """Count a call whose request, of this many bytes, was read just now, however it ends."""
        attempt.read = perf_counter()
        with self._fail_open():
            self._metrics.begun(dialect)
        try:
            yield
        finally:
            with self._fail_open():
                self._metrics.ended(dialect, size, attempt)

    def happened(self, model: str, events: Iterable[Event]) -> None:
        """Count these events of a call to this model."""
        with self._fail_open():
            self._metrics.happened(model, events)

    def bypassed(self, reason: str) -> None:
        """Count a call that went out without something of ours."""
        with self._fail_open():
            self._metrics.bypassed(reason)
