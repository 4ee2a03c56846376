"""What Prometheus scrapes. Base units, few and bounded labels: no ids, no names of models, no callers."""

from typing import Final

from prometheus_client import (
    GC_COLLECTOR,
    PLATFORM_COLLECTOR,
    PROCESS_COLLECTOR,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from planner.version import __version__

REGISTRY: Final = CollectorRegistry()
CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
_SOLVE_SECONDS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_REQUEST_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 60)
_STALL_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
QUANTITIES: Final = ("step_seconds", "peak_allocated_bytes")
"""What runs are held against."""
_RATIOS: Final = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.02, 1.05, 1.1, 1.2, 1.3, 1.5, 2.0)

REQUESTS: Final = Counter(
    "meshwright_http_requests", "Answered requests.", ("operation", "method", "status"), registry=REGISTRY
)
REQUEST_SECONDS: Final = Histogram(
    "meshwright_http_request_duration_seconds",
    "From the request to the end of its answer; streams included.",
    ("operation",),
    registry=REGISTRY,
    buckets=_REQUEST_SECONDS,
)
LOOP_STALL: Final = Histogram(
    "meshwright_event_loop_stall_seconds",
    "How late the event loop was at a task that is due twenty times a second.",
    registry=REGISTRY,
    buckets=_STALL_SECONDS,
)
SOLVE_SECONDS: Final = Histogram(
    "meshwright_solve_duration_seconds",
    "From the claim of a request to its end, of the solves of this process.",
    ("verb",),
    registry=REGISTRY,
    buckets=_SOLVE_SECONDS,
)
SOLVES: Final = Counter(
    "meshwright_plans", "Requests that ended in this process, by how.", ("verb", "status"), registry=REGISTRY
)
QUEUE: Final = Gauge("meshwright_queue_depth", "Accepted requests, of all replicas.", ("state",), registry=REGISTRY)
ASKED: Final = Counter(
    "meshwright_plan_requests",
    "Accepted requests: stored (an equal one was answered before), joined (one is under way or the key came before), "
    "queued (new).",
    ("verb", "result"),
    registry=REGISTRY,
)
ERROR_RATIO: Final = Histogram(
    "meshwright_prediction_error_ratio",
    "Measured over predicted, of the measurements that came in.",
    ("quantity",),
    registry=REGISTRY,
    buckets=_RATIOS,
)
DRIFTING: Final = Gauge(
    "meshwright_drifting_kinds",
    "Pairs of framework and device family whose last runs lie outside of their intervals, as this process saw them.",
    ("quantity",),
    registry=REGISTRY,
)
for _quantity in QUANTITIES:
    DRIFTING.labels(_quantity).set(0)  # an alert needs a series to look at
REFUSED: Final = Counter(
    "meshwright_refused_requests",
    "Refused before any work: who asks is unknown, or asks too often.",
    ("reason",),
    registry=REGISTRY,
)
_BUILD: Final = Gauge("meshwright_build_info", "Always 1; the release.", ("version",), registry=REGISTRY)
_BUILD.labels(__version__).set(1)
for _collector in (PROCESS_COLLECTOR, PLATFORM_COLLECTOR, GC_COLLECTOR):
    REGISTRY.register(_collector)


def text() -> bytes:
    """Everything, in Prometheus' text format."""
    return generate_latest(REGISTRY)
