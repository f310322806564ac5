"""OpenTelemetry spans of a start of a run: `run`, below it a `shard` each, below that one for every attempt at a stage.

The driver makes them, with the times that the progress tracker has noted, when a shard is committed or the run ends: workers
need neither the packages nor a way to the collector. No span has a text of a query or a document.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cluster import costs
from cluster.errors import DmqrError
from cluster.run.progress import ProgressTracker
from cluster.run.settings import TraceSettings
from cluster.run.shards import Manifest
from cluster.run.snapshot import BlockAttempt
from jobs.job.prepare import Prepared
from jobs.run.limits import outcome
from jobs.runs.sums import by_reason
from jobs.terminal.logs import event

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import SpanExportResult
    from opentelemetry.trace import Span, Status

_PATH = "/v1/traces"  # of OTLP over HTTP, as OTEL_EXPORTER_OTLP_ENDPOINT is completed, too
_FLUSH_SECONDS = 10.0  # seconds that a run's end waits for a collector

Attributes = dict[str, Any]


class Traces:
    """The spans of one start; a batch processor sends them, so no call waits for the collector."""

    def __init__(self, settings: TraceSettings | None, attributes: Attributes) -> None:
        """Begins the trace.

        Without settings nothing is recorded; the attributes are those of every span.
        """
        self.tracker: ProgressTracker | None = None
        """Of this start, once there is one."""
        self._attributes, self._on = attributes, settings is not None
        if settings is None:
            return
        self._provider, self._exporter = _provider(settings)
        self._tracer = self._provider.get_tracer("dmqr")
        self._run = self._tracer.start_span("run", attributes=attributes)
        trace_id = format(self._run.get_span_context().trace_id, "032x")
        event("trace", f"trace {trace_id}", trace_id=trace_id)

    def committed(self, manifest: Manifest) -> None:
        """Adds the span of a shard that has just been committed, and those of its stages."""
        if self._on and self.tracker is not None:
            counts = manifest.counts
            found = {"dmqr.rows": counts.get("queries", 0), "dmqr.failed_queries": counts.get("failed_queries", 0)}
            attempts = self.tracker.attempts(manifest.shard).get(manifest.shard, [])
            self._add_shard(manifest.shard, attempts, found | _reasons(counts), None)

    def close(self, error: BaseException | None) -> None:
        """Ends the trace and sends what is left, for `_FLUSH_SECONDS` at most.

        Args:
            error: That ended the run; its message is left out, since it may hold a text.
        """
        if not self._on:
            return
        if error is not None and self.tracker is not None:
            for shard, attempts in self.tracker.attempts().items():
                self._add_shard(shard, attempts, {}, "not committed")
        code = error.code if isinstance(error, DmqrError) else type(error).__name__
        self._run.set_attribute("dmqr.outcome", "finished" if error is None else outcome(error))
        self._run.set_status(_status(None if error is None else code))
        self._run.end()
        flush = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
        flush.start()
        flush.join(_FLUSH_SECONDS)
        if self._exporter.lost or flush.is_alive():
            words = "the collector of cluster.traces did not take all spans; the log's output file has its answers"
            event("warning", words, logging.WARNING, lost_requests=self._exporter.lost)

    def _add_shard(self, shard: int, attempts: Sequence[BlockAttempt], found: Attributes, error: str | None) -> None:
        from opentelemetry.trace import set_span_in_context

        now = time.time()
        began = attempts[0].began if attempts else now
        own = self._attributes | {"dmqr.shard": shard}
        run = set_span_in_context(self._run)
        span = self._tracer.start_span("shard", run, attributes=own | found, start_time=_nanoseconds(began))
        within = set_span_in_context(span)
        for one in attempts:
            attributes = own | {
                "dmqr.stage": one.stage, "dmqr.attempt": one.number, "dmqr.worker": one.worker, "dmqr.rows": one.rows,
            }  # fmt: skip
            failed = "not finished" if one.totals is None else None
            if one.totals is not None:
                quantities = costs.stage_sums(one.totals.spent)
                attributes |= {f"dmqr.{name}": int(quantities[name]) for name in costs.QUANTITIES if quantities.get(name)}
                attributes |= _reasons(one.totals.counts)
            stage = self._tracer.start_span(one.stage, within, attributes=attributes, start_time=_nanoseconds(one.began))
            _end(stage, failed, one.ended or now)
        _end(span, error, now)


@contextlib.contextmanager
def traced(prepared: Prepared, start: int) -> Iterator[Traces]:
    """Yields the trace of a start of the run, which is closed with the outcome."""
    config = prepared.config
    attributes = {"dmqr.run_id": prepared.run_id, "dmqr.run": config.name, "dmqr.start": start}
    traces = Traces(config.cluster.traces, attributes)
    try:
        yield traces
    except BaseException as error:
        traces.close(error)
        raise
    traces.close(None)


def _provider(settings: TraceSettings) -> tuple[TracerProvider, Any]:
    """Returns a provider of its own, so that the spans of libraries stay what the process's environment makes of them."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    class Counting(OTLPSpanExporter):
        lost = 0  # requests that failed in spite of the SDK's retries

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            result = super().export(spans)
            self.lost += result.name == "FAILURE"
            return result

    resource = Resource.create()
    if str(resource.attributes["service.name"]).startswith("unknown_service"):  # not set by OTEL_SERVICE_NAME
        resource = resource.merge(Resource({"service.name": "dmqr"}))
    exporter = Counting(settings.endpoint.rstrip("/").removesuffix(_PATH) + _PATH if settings.endpoint else None)
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider, exporter


def _reasons(counts: Mapping[str, int]) -> Attributes:
    return {f"dmqr.errors.{reason}": n for reason, n in by_reason(counts).items()}


def _end(span: Span, error: str | None, seconds: float) -> None:
    span.set_status(_status(error))
    span.end(_nanoseconds(seconds))


def _status(error: str | None) -> Status:
    from opentelemetry.trace import Status, StatusCode

    return Status(StatusCode.OK) if error is None else Status(StatusCode.ERROR, error)


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
