"""The solver process: reads requests from a pipe, solves one at a time, answers with a plan or a problem."""

import signal
import traceback
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from cost_models.errors import MeshwrightError
from planner.request import PlanRequest
from service.problems import INTERNAL, Problem, problem, problem_of


class Task(BaseModel):
    """One solve."""

    model_config = ConfigDict(frozen=True)

    id: str
    request: PlanRequest


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
    from planner.planning import plan

    try:
        found = plan(task.request, report=report)
    except MeshwrightError as error:
        return Answer(problem=problem_of(error))
    except Exception as error:  # a bug fails this job alone, and is told apart from a dead worker
        return Answer(
            problem=problem(INTERNAL, f"the solve failed with {type(error).__name__}"), trace=traceback.format_exc()
        )
    envelope = found.envelope.model_copy(update={"id": task.id})
    return Answer(plan_json=found.model_copy(update={"envelope": envelope}).model_dump_json())


def _warm() -> None:
    """Load what the first solve would load."""
    from cost_models import catalog

    for module in ("solver.search", "ortools.sat.python.cp_model"):
        import_module(module)
    catalog.calibration()
