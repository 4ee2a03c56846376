"""The solver process: reads requests from a pipe, solves one at a time, answers with a plan or a problem."""

import logging
import os
import signal
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Final, Literal

import structlog
from pydantic import BaseModel, ConfigDict, Field

from cost_models.calibration import Calibration
from cost_models.errors import MeshwrightError
from planner.frontier import Frontier, Ladder
from planner.fronts import Axes
from planner.plan import Plan
from planner.request import PlanRequest
from service import observability
from service.problem_kinds import INTERNAL
from service.problems import Problem, problem, problem_of
from service.tracing import Worked

if TYPE_CHECKING:
    from planner.fitting.learning import Learned

Verb = Literal["plan", "estimate", "frontier", "ladder", "calibration"]

NICENESS: Final = 5
"""Of solver processes: on a busy machine the service itself, which answers everybody, goes first."""
_log = structlog.get_logger(__name__)


class Task(BaseModel):
    """One solve, the pricing of one configuration, or a calibration."""

    model_config = ConfigDict(frozen=True)

    id: str
    request: PlanRequest | None = None
    """None: the verb asks about no job."""
    verb: Verb = "plan"
    options: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the verb beside the request."""
    calibration: Calibration | None = None
    """The constants to answer with; None: those of the worker's own installation."""
    request_id: str | None = None
    """Of the request that asked for it, for the log."""

    @property
    def asked(self) -> PlanRequest:
        """The request of a verb that has one."""
        assert self.request is not None
        return self.request


class Progress(BaseModel):
    """The latest word of a solve: the best value found, what is proven, and how far they are apart."""

    model_config = ConfigDict(frozen=True)

    text: str
    objective: str | None = None
    incumbent: float | None = None
    bound: float | None = None
    gap: float | None = Field(default=None, description="(incumbent - bound) / incumbent")


class Answer(BaseModel):
    """How a solve ended: a plan or a problem."""

    model_config = ConfigDict(frozen=True)

    plan_json: str | None = None
    """Or what else the verb makes."""
    problem: Problem | None = None
    trace: str | None = None
    """Of a bug, for the log."""
    worked: Worked | None = None


Message = tuple[Literal["ready", "progress", "answer"], Any]
Tell = Callable[[Progress], None]


class Stopped(Exception):
    """Raised by a `Tell` that wants the solve to end."""


class Told:
    """Words and values of a solve, as progress."""

    def __init__(self, tell: Tell) -> None:
        """Pass each change on to `tell`."""
        self._tell = tell
        self._latest = Progress(text="started")

    def line(self, text: str) -> None:
        """What people read, with the values told before."""
        self._latest = self._latest.model_copy(update={"text": text})
        self._tell(self._latest)

    def value(self, name: str, value: float) -> None:
        """A better value found, under its objective's name, or a bound proven, under the name and ` bound`."""
        last, objective = self._latest, name.removesuffix(" bound")
        incumbent, bound = (last.incumbent, last.bound) if last.objective == objective else (None, None)
        if objective == name:
            incumbent = value
        else:
            bound = value
        gap = None
        if incumbent and bound is not None:
            gap = max(0.0, (incumbent - bound) / abs(incumbent))
        self._latest = Progress(text=last.text, objective=objective, incumbent=incumbent, bound=bound, gap=gap)


def main(pipe: Connection, log: tuple[str, str] = ("INFO", "auto")) -> None:
    """Serve until the other end of the pipe is closed; `log` is level and style of the service's own."""
    # Ctrl-C reaches the whole foreground group; only the service decides when its workers end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(AttributeError, OSError):  # not everywhere, and not for everybody: a sandbox may forbid it
        os.nice(NICENESS)
    observability.configure(*log)
    logging.captureWarnings(True)
    _warm()
    try:
        pipe.send(("ready", None))
        while True:
            task: Task = pipe.recv()
            pipe.send(("answer", answer(task, lambda progress: pipe.send(("progress", progress)))))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def answer(task: Task, tell: Tell) -> Answer:
    """Solve; every line that is logged meanwhile names the plan and the request."""
    began, cpu = time.time_ns(), time.process_time()
    with structlog.contextvars.bound_contextvars(plan_id=task.id, request_id=task.request_id):
        found = _answer(task, tell)
        worked = Worked(began_ns=began, ended_ns=time.time_ns(), pid=os.getpid())
        seconds = {"seconds": (worked.ended_ns - began) / 1e9, "cpu_seconds": time.process_time() - cpu}
        _log.info(
            "worked", verb=task.verb, pid=worked.pid, **{name: round(value, 3) for name, value in seconds.items()}
        )
    return found.model_copy(update={"worked": worked})


def _answer(task: Task, tell: Tell) -> Answer:
    """Every error becomes a problem, so that nothing but data crosses the pipe."""
    try:
        if task.verb == "calibration":
            return Answer(plan_json=_learned(task).model_dump_json())
        return named(task, _answered(task, Told(tell)))
    except Stopped:
        raise
    except MeshwrightError as error:
        return Answer(problem=problem_of(error))
    except Exception as error:  # a bug fails this job alone, and is told apart from a dead worker
        return Answer(
            problem=problem(INTERNAL, f"the solve failed with {type(error).__name__}"), trace=traceback.format_exc()
        )


def named(task: Task, found: Plan | Frontier | Ladder) -> Answer:
    """What was found, under the id by which it can be asked for."""
    own = found.model_copy(update={"envelope": found.envelope.model_copy(update={"id": task.id})})
    return Answer(plan_json=own.model_dump_json())


def axes_of(options: Mapping[str, Any]) -> Axes:
    """The axes of a frontier; JSON has no tuples."""
    one, other = options["axes"]
    return one, other


def _answered(task: Task, told: Told) -> Plan | Frontier | Ladder:
    """What the planner makes of a task."""
    from planner import frontier, planning

    request, calibration = task.asked, task.calibration
    match task.verb:
        case "plan":
            return planning.plan(request, calibration, report=told.line, progress=told.value)
        case "estimate":
            return planning.estimate(request, calibration)
        case "frontier":
            axes, points = axes_of(task.options), task.options["points"]
            return frontier.frontier(request, axes, points, calibration, report=told.line)
        case "ladder":
            return frontier.ladder(request, task.options["low"], task.options["high"], calibration, report=told.line)
        case "calibration":
            raise AssertionError("a calibration is no plan")


def _learned(task: Task) -> "Learned":
    """The calibration that a site's runs make of the task's."""
    from planner.fitting.learning import learn
    from planner.fitting.site_runs import RunPlan

    assert task.calibration is not None
    return learn(task.calibration, [RunPlan.model_validate(plan) for plan in task.options["plans"]])


def _warm() -> None:
    """Load what the first solve would load."""
    from cost_models import catalog

    for module in ("solver.search", "ortools.sat.python.cp_model"):
        import_module(module)
    catalog.calibration()
