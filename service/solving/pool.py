"""The one face of everything that solves: our own processes, or another cluster's."""

from collections.abc import Callable
from typing import Protocol

from service.errors import Cancelled
from service.solving.worker import Answer, Progress, Task

OnProgress = Callable[[Progress], None]
"""Called in the event loop."""


class SolverPool(Protocol):
    """Where solves run."""

    async def start(self) -> None:
        """Make it ready to take tasks."""

    async def submit(self, task: Task, on_progress: OnProgress) -> Answer:
        """Solve `task` as soon as a worker is free.

        Raises:
            SolveTimedOut: it took too long and was stopped.
            WorkerDied: its process ended.
            PoolAway: there is nobody to work on it.
            Cancelled: `cancel` was called.
        """

    async def cancel(self, task_id: str) -> None:
        """Stop a task. One that is not known, or has ended, is no error."""

    async def close(self) -> None:
        """Stop all work."""

    @property
    def ready(self) -> bool:
        """Whether a task would be taken now."""

    @property
    def capacity(self) -> int:
        """Tasks that can be worked on at the same time."""


def cancelled() -> Cancelled:
    """What a stopped task ends with, whoever ran it."""
    return Cancelled("the plan was cancelled before it was made")
