"""What a solver process runs in these tests, instead of solving."""

import os
import time
from multiprocessing.connection import Connection

from service.solving.worker import Answer, Progress, Task
from tests.unit.service.client import planned


def obedient(pipe: Connection) -> None:
    """Does what the id of the task says: die, sleep, or answer with its own process id in the plan's place."""
    pipe.send(("ready", None))
    while True:
        try:
            task: Task = pipe.recv()
        except EOFError:
            return
        if task.id == "die":
            os._exit(9)
        if task.id == "sleep":
            time.sleep(600)
        pipe.send(("progress", Progress(text=str(os.getpid()))))
        pipe.send(("answer", planned(task) if task.id != "pid" else Answer(plan_json=str(os.getpid()))))


def stillborn(pipe: Connection) -> None:
    """Ends before it is ready."""
    pipe.close()
