"""Spans of one request: the request itself, its transactions, its time in the queue, its solve; all in one trace."""

import logging
import os
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from service.observability import configure
from service.problem_kinds import INTERNAL
from service.problems import problem
from service.reading import CONFIGURATION_EXAMPLE, JOB_EXAMPLE
from service.solving.worker import Answer
from tests.unit.planner.requests import SMALL
from tests.unit.service.client import JOB, FakePool, InlinePool, client

pytestmark = pytest.mark.usefixtures("databases")
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE = 0x0AF7651916CD43DD8448EB211C80319C
WAIT = {"Prefer": "wait=10", "traceparent": CALLER}


@pytest.fixture(scope="module")
def exporter() -> InMemorySpanExporter:
    """The provider of a process can be set once."""
    found, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(found))
    trace.set_tracer_provider(provider)
    return found


@pytest.fixture(autouse=True)
def emptied(exporter: InMemorySpanExporter) -> Iterator[None]:
    exporter.clear()
    yield
    exporter.clear()


def named(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


def test_a_request_is_one_trace_from_the_caller_to_the_solve(exporter: InMemorySpanExporter) -> None:
    with client() as http:
        answer = http.post("/v1/plans", json=JOB, headers=WAIT)
        assert answer.status_code == 200, answer.text
    plan_id = answer.headers["location"].rpartition("/")[2]
    [request] = named(exporter, "POST /v1/plans")
    assert request.parent is not None
    assert f"{request.parent.span_id:016x}" == CALLER.split("-")[2]
    for name in ("plan.queue", "plan.solve"):
        [span] = named(exporter, name)
        assert span.parent is not None
        assert span.parent.span_id == request.context.span_id
        assert dict(span.attributes or {})["meshwright.plan_id"] == plan_id
    [solve], [queue] = named(exporter, "plan.solve"), named(exporter, "plan.queue")
    assert dict(solve.attributes or {})["meshwright.state"] == "done"
    assert queue.start_time is not None
    assert queue.end_time is not None
    assert queue.start_time <= queue.end_time
    writes = named(exporter, "store.write")
    assert {span.context.trace_id for span in writes + named(exporter, "store.read")} == {TRACE}
    assert {span.parent.span_id for span in writes if span.parent} >= {request.context.span_id, solve.context.span_id}


def test_the_work_of_a_solver_process_is_in_the_trace(exporter: InMemorySpanExporter) -> None:
    """It has no exporter of its own: it says when it worked."""
    with client(InlinePool()) as http:
        answer = http.post("/v1/plans", json=SMALL, headers={**WAIT, "Prefer": "wait=60"})
        assert answer.status_code == 200, answer.text
        estimate = {**JOB_EXAMPLE, "configuration": CONFIGURATION_EXAMPLE}
        assert http.post("/v1/estimates", json=estimate, headers=WAIT).status_code == 200
    [solve], [work] = named(exporter, "plan.solve"), named(exporter, "plan.work")
    assert work.parent is not None
    assert (work.context.trace_id, work.parent.span_id) == (TRACE, solve.context.span_id)
    assert dict(work.attributes or {}) == {"process.pid": os.getpid()}
    assert (solve.start_time or 0) <= (work.start_time or 0) <= (work.end_time or 0) <= (solve.end_time or 0)
    [priced] = named(exporter, "estimate.work")
    assert priced.context.trace_id == TRACE


def test_a_failed_solve_is_a_failed_span(exporter: InMemorySpanExporter) -> None:
    with client(FakePool(lambda _: Answer(problem=problem(INTERNAL, "it broke")))) as http:
        assert http.post("/v1/plans", json=JOB, headers=WAIT).status_code == 500
    [solve] = named(exporter, "plan.solve")
    assert not solve.status.is_ok
    assert solve.status.description == "it broke"


def test_probes_and_loops_leave_no_spans(exporter: InMemorySpanExporter) -> None:
    with client() as http:
        for path in ("/livez", "/readyz", "/metrics"):
            assert http.get(path).status_code == 200
    assert exporter.get_finished_spans() == ()


def test_lines_of_the_log_name_the_trace(exporter: InMemorySpanExporter, capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        configure("INFO", "json")
        with client() as http:
            http.get("/v1/plans", headers={"traceparent": CALLER})
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    assert f'"trace_id": "{TRACE:032x}"' in capsys.readouterr().err
