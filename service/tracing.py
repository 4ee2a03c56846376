"""Spans of OpenTelemetry: requests (FastAPI's own), transactions, time in the queue, solves, the work of solvers.

Recorded where OTEL_EXPORTER_OTLP_ENDPOINT is set, which needs the extra `otel`; elsewhere they are almost free.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Any, Final

from fastapi.telemetry import TelemetryConfig
from opentelemetry import context, trace
from opentelemetry.trace import Span, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from pydantic import BaseModel, ConfigDict

from planner.version import __version__

QUIET: Final = frozenset({"/livez", "/readyz", "/healthz", "/metrics"})
"""Asked every few seconds by machines; no spans of these."""
TELEMETRY: Final[TelemetryConfig] = {
    "auto_configure": True,  # by the variables that all of OpenTelemetry reads; nothing without an endpoint
    "metrics": False,  # Prometheus has them
    "logs": False,  # they would hold bodies
    "operation_spans": False,
    "exclude": lambda scope: scope["path"] in QUIET,
}
_TRACER: Final = trace.get_tracer("meshwright", __version__)
_PARENT: Final = "traceparent"
_W3C: Final = TraceContextTextMapPropagator()
Attributes = Mapping[str, str | int | bool]


def traceparent() -> str | None:
    """The current span, so that work which goes on later can name it (W3C Trace Context); None: there is none."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier)
    return carrier.get(_PARENT)


def inner(name: str, attributes: Attributes | None = None) -> AbstractContextManager[Any]:
    """A span within the current one; nothing where there is none, such as in loops that look every second."""
    if not trace.get_current_span().get_span_context().is_valid:
        return nullcontext()
    return _TRACER.start_as_current_span(name, attributes=attributes, record_exception=False)


@contextmanager
def resumed(parent: str | None) -> Iterator[None]:
    """Go on in the trace of an earlier request."""
    token = context.attach(_W3C.extract({} if parent is None else {_PARENT: parent}, context.Context()))
    try:
        yield
    finally:
        context.detach(token)


def past(name: str, since: datetime, attributes: Attributes | None = None) -> None:
    """A span from an instant until now."""
    span = _TRACER.start_span(name, start_time=int(since.astimezone(UTC).timestamp() * 1e9), attributes=attributes)
    span.end()


class Worked(BaseModel):
    """When a solver process, which records no spans itself, was at work."""

    model_config = ConfigDict(frozen=True)

    began_ns: int
    """[nanoseconds since 1970]"""
    ended_ns: int
    pid: int


def between(name: str, worked: Worked) -> None:
    """A span of what a solver process did, within the current one."""
    if not trace.get_current_span().get_span_context().is_valid:
        return
    span = _TRACER.start_span(name, start_time=worked.began_ns, attributes={"process.pid": worked.pid})
    span.end(worked.ended_ns)


@contextmanager
def work(name: str, attributes: Attributes | None = None) -> Iterator[Span]:
    """A span of something that is worth one even without a request around it."""
    with _TRACER.start_as_current_span(name, attributes=attributes, record_exception=False) as span:
        yield span


def failed(span: Span, why: str) -> None:
    """The work of a span ended without a result."""
    span.set_status(StatusCode.ERROR, why)


def identify(_: Any, __: str, event: dict[str, Any]) -> dict[str, Any]:
    """Name the current trace in a log line (a processor of structlog)."""
    found = trace.get_current_span().get_span_context()
    if found.is_valid:
        event["trace_id"] = trace.format_trace_id(found.trace_id)
    return event
