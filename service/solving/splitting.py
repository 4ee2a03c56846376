"""Tasks that fall into parts for many workers: a ladder's rungs, and those of a frontier that is made of rungs."""

from collections.abc import Sequence

from planner import parts
from planner.frontier import Frontier, Ladder
from planner.fronts import Axes
from service.solving.worker import Answer, Task, axes_of, named


def split(task: Task) -> tuple[Task, ...]:
    """The parts of a task; none when it is done in one.

    Raises:
        SpecError: the request has no such answer.
    """
    match task.verb:
        case "ladder":
            counts = parts.ladder_parts(task.asked, *_range(task), task.calibration)
        case "frontier":
            counts = parts.frontier_parts(task.asked, *_axes(task), task.calibration)
        case _:
            counts = ()
    if len(counts) < 2:
        return ()
    return tuple(
        task.model_copy(update={"id": f"{task.id}/{count}", "verb": "ladder", "options": {"low": count, "high": count}})
        for count in counts
    )


def join(task: Task, answers: Sequence[Answer]) -> Answer:
    """The answer to a task from those to its parts; a problem of one is the whole's."""
    rungs = []
    for answer in answers:
        if answer.plan_json is None:
            return answer
        rungs.append(Ladder.model_validate_json(answer.plan_json))
    found: Ladder | Frontier
    if task.verb == "ladder":
        found = parts.ladder_of(rungs, task.asked, *_range(task), task.calibration)
    else:
        found = parts.frontier_of(rungs, task.asked, *_axes(task), task.calibration)
    return named(task, found)


def _range(task: Task) -> tuple[int, int | None]:
    return task.options["low"], task.options["high"]


def _axes(task: Task) -> tuple[Axes, int]:
    return axes_of(task.options), task.options["points"]
