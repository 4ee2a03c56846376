"""What the service refuses by itself; `service.problems` alone knows the HTTP status of each.

    MeshwrightError                    (cost_models)
    └─ ServiceError
       ├─ NotFound                     no such plan, target, page
       ├─ NotReady                     the plan exists but is still being made, or was never finished
       ├─ Busy                         too much is waiting already; try later
       ├─ NotInline                    the request names a file or a download, which the service does not open
       └─ SolveFailed                  the work on an accepted request ended without an answer
          ├─ SolveTimedOut             it took longer than this installation allows
          └─ WorkerDied                the process that worked on it is gone

Messages are one line.
"""

from cost_models.errors import MeshwrightError


class ServiceError(MeshwrightError):
    """Base of the service's errors."""


class NotFound(ServiceError):
    """Nothing of that name."""


class NotReady(ServiceError):
    """It exists, but there is no plan yet."""


class Busy(ServiceError):
    """The queue is full."""


class NotInline(ServiceError):
    """A file path or a Hub id where only data is accepted; `pointer` says where."""

    def __init__(self, pointer: str, message: str) -> None:
        """Point at the key (JSON Pointer)."""
        self.pointer = pointer
        super().__init__(message)


class SolveFailed(ServiceError):
    """No answer."""


class SolveTimedOut(SolveFailed):
    """Stopped at the limit of this installation."""


class WorkerDied(SolveFailed):
    """The worker process ended in the middle of a solve."""
