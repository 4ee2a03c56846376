"""What the service refuses by itself; `service.problems` alone knows the HTTP status of each.

    MeshwrightError                    (cost_models)
    └─ ServiceError
       ├─ NotFound                     no such plan, target, page
       ├─ Conflict                     it is there already, or it changed under the request
       ├─ KeyReused                    an Idempotency-Key that came with another request before
       ├─ Cancelled                    the plan was cancelled before it was made
       ├─ StorageUnavailable           the database is away, full or cannot be written
       │  └─ NotUpgraded               the database lacks migrations of this release
       ├─ Unstorable                   a text that the database cannot hold
       ├─ NotReady                     the plan exists but is still being made, or was never finished
       ├─ Unauthenticated              nobody is known to ask, or whoever does is not let in
       ├─ ProviderUnavailable          whoever vouches for bearer tokens cannot be asked
       ├─ Forbidden                    the caller lacks the scope
       ├─ RateLimited                  the caller asks too often
       ├─ Busy                         too much is waiting already; try later
       ├─ TooMuch                      the caller's project has its share under way
       ├─ Pointed                      one key of the body is refused
       │  ├─ UnknownNames              it names a cluster or a device that nobody registered
       │  └─ NotInline                 it names a file or a download, which the service does not open
       └─ SolveFailed                  the work on an accepted request ended without an answer
          ├─ SolveTimedOut             it took longer than this installation allows
          └─ WorkerDied                the process that worked on it is gone
             └─ PoolAway               so is everybody who works: it is not this request that ends them

Messages are one line.
"""

from typing import TYPE_CHECKING

from cost_models.errors import MeshwrightError

if TYPE_CHECKING:
    from service.callers import Caller


class ServiceError(MeshwrightError):
    """Base of the service's errors."""


class NotFound(ServiceError):
    """Nothing of that name."""


class Conflict(ServiceError):
    """Something of that name is there already, or another request changed it."""


class KeyReused(ServiceError):
    """The key names another request."""


class Cancelled(ServiceError):
    """There will be no plan: somebody cancelled it."""


class StorageUnavailable(ServiceError):
    """Nothing can be remembered now."""


class NotUpgraded(StorageUnavailable):
    """The database lacks migrations that this release needs."""


class Unstorable(ServiceError):
    """A text with characters that the database cannot hold, such as NUL."""


class NotReady(ServiceError):
    """It exists, but there is no plan yet."""


class Unauthenticated(ServiceError):
    """Who asks is not known, or not let in."""

    def __init__(self, message: str, shown: "Caller | None" = None) -> None:
        """`shown`: whose key it was that is not good; for the audit, not for the answer."""
        self.shown = shown
        super().__init__(message)


class ProviderUnavailable(ServiceError):
    """The keys of the OIDC provider cannot be fetched."""


class Forbidden(ServiceError):
    """Who asks may not."""


class RateLimited(ServiceError):
    """Who asks, asks too often."""

    def __init__(self, message: str, seconds: float) -> None:
        """When the next request will pass. [seconds]"""
        self.seconds = seconds
        super().__init__(message)


class Busy(ServiceError):
    """The queue is full."""


class TooMuch(ServiceError):
    """A project's share of this installation is used up."""


class Pointed(ServiceError):
    """A key of the body; `pointer` says which."""

    def __init__(self, pointer: str, message: str) -> None:
        """Point at the key (JSON Pointer)."""
        self.pointer = pointer
        super().__init__(message)


class NotInline(Pointed):
    """A file path or a Hub id where only data is accepted."""


class UnknownNames(Pointed):
    """The name of something that is not registered."""


class SolveFailed(ServiceError):
    """No answer."""


class SolveTimedOut(SolveFailed):
    """Stopped at the limit of this installation."""


class WorkerDied(SolveFailed):
    """The worker process ended in the middle of a solve."""


class PoolAway(WorkerDied):
    """Nobody works at all for now, whatever the request."""
