"""The solver process: reads requests from a pipe, solves one at a time, answers with a plan or a problem."""

import signal
import traceback
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from cost_models.errors import MeshwrightError
from planner.plan import Plan
from planner.request import PlanRequest
from service.problems import INTERNAL, Problem, problem, problem_of


class Task(BaseModel):
    """One solve, or the pricing of one configuration."""

    model_config = ConfigDict(frozen=True)

    id: str
    request: PlanRequest
    verb: Literal["plan", "estimate"] = "plan"


class Progress(BaseModel):
    """The latest word of a solve: its stage, the best value found."""

    model_config = ConfigDict(frozen=True)

    text: str


class Answer(BaseModel):
    """How a solve ended: a plan or a problem."""

    model_config = ConfigDict(frozen=True)

    plan_json: str | None = None
    problem: Problem | None = None
    trace: str | None = None
    """Of a bug, for the log."""


Message = tuple[Literal["ready", "progress", "answer"], Any]


def main(pipe: Connection) -> None:
    """Serve until the other end of the pipe is closed."""
    # Ctrl-C reaches the whole foreground group; only the service decides when its workers end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _warm()
    try:
        pipe.send(("ready", None))
        while True:
            task: Task = pipe.recv()
            pipe.send(("answer", answer(task, lambda text: pipe.send(("progress", text)))))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def answer(task: Task, report: Any) -> Answer:
    """Solve; every error becomes a problem, so that nothing but data crosses the pipe."""
    from planner.planning import estimate, plan

    try:
        found = estimate(task.request) if task.verb == "estimate" else plan(task.request, report=report)
        return Answer(plan_json=_named(found, task).model_dump_json())
    except MeshwrightError as error:
        return Answer(problem=problem_of(error))
    except Exception as error:  # a bug fails this job alone, and is told apart from a dead worker
        return Answer(
            problem=problem(INTERNAL, f"the solve failed with {type(error).__name__}"), trace=traceback.format_exc()
        )


def _named(found: Plan, task: Task) -> Plan:
    """A plan under the id by which it can be asked for; an estimate is not kept and has its own."""
    if task.verb == "estimate":
        return found
    return found.model_copy(update={"envelope": found.envelope.model_copy(update={"id": task.id})})


def _warm() -> None:
    """Load what the first solve would load."""
    from cost_models import catalog

    for module in ("solver.search", "ortools.sat.python.cp_model"):
        import_module(module)
    catalog.calibration()
