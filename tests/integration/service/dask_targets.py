"""What Dask workers run in these tests, instead of solving."""

import os
import time

from service.solving.dask_pool import teller
from service.solving.worker import Answer, Progress, Task, answer
from tests.unit.service.client import planned


def obedient(task_json: str, topic: str) -> str:
    """Does what the id of the task says: die, go on and on, or answer with a plan."""
    task, tell = Task.model_validate_json(task_json), teller(topic)
    if task.id == "die":
        os._exit(9)
    while task.id.startswith("endless"):
        time.sleep(0.05)
        tell(Progress(text="still at it", incumbent=1.0))
    if task.id.startswith("pid"):
        return Answer(plan_json=str(os.getpid())).model_dump_json()
    return planned(task).model_dump_json()


def telling(task_json: str, topic: str) -> str:
    """Solves, and says of which part it is and who does it."""
    task, tell = Task.model_validate_json(task_json), teller(topic)
    tell(Progress(text=f"part {task.id} by {os.getpid()}"))
    return answer(task, tell).model_dump_json()
