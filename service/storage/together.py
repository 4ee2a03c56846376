"""Reads asked for at the same time are done together: one thread, one transaction, one snapshot.

What it costs to reach a thread and to begin and end a transaction is then paid once for all of them. Each read still
sees everything that was committed before it was asked for.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from service.storage.repositories import Repositories

T = TypeVar("T")
Read = Callable[[Repositories], Any]
MOST: Final = 32
"""Reads in one transaction: the first of them has its answer when the last is done."""
PATIENCE_SECONDS: Final = 0.005
"""A read that has waited so long behind others gets a thread of its own, so that a slow one delays few."""


class _Asked(NamedTuple):
    read: Read
    future: "asyncio.Future[Any]"
    at: float
    """[seconds, monotonic]"""


class _Done(NamedTuple):
    future: "asyncio.Future[Any]"
    result: Any = None
    error: Exception | None = None


class Together:
    """The reads of one event loop."""

    def __init__(self, transact: Callable[[Read, float], Any], threads: int) -> None:
        """`transact` does a read in a transaction, and tries again until an instant if the database is away."""
        self._transact, self._lanes = transact, threads
        self._threads = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="reading")
        self._asked: deque[_Asked] = deque()
        self._busy = 0
        self._help: asyncio.TimerHandle | None = None

    async def read(self, read: Callable[[Repositories], T]) -> T:
        """Do `read` with whatever else is asked for now."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._asked.append(_Asked(read, future, time.monotonic()))
        if not self._busy:
            self._begin(loop)
        elif self._help is None and self._busy < self._lanes:
            self._help = loop.call_later(PATIENCE_SECONDS, self._look, loop)
        return await future

    def close(self) -> None:
        """Finish what was asked."""
        self._threads.shutdown(wait=True)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._busy += 1
        loop.run_in_executor(self._threads, self._work, loop).add_done_callback(lambda _: self._end(loop))

    def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        """A thread found nothing more to do; something may have come since it looked."""
        self._busy -= 1
        if self._asked and not self._busy:
            self._begin(loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Whether somebody still waits for a turn."""
        self._help = None
        if not self._asked or self._busy >= self._lanes:
            return
        left = self._asked[0].at + PATIENCE_SECONDS - time.monotonic()
        if left <= 0:
            self._begin(loop)
        else:
            self._help = loop.call_later(left, self._look, loop)

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread: until nothing is asked any more."""
        while taken := self._taken():
            loop.call_soon_threadsafe(_tell, self._done(taken))

    def _taken(self) -> deque[_Asked]:
        taken: deque[_Asked] = deque()
        try:
            while len(taken) < MOST:
                taken.append(self._asked.popleft())
        except IndexError:
            pass
        return taken

    def _done(self, asked: deque[_Asked]) -> list[_Done]:
        """Every read's result or error. One that the database refuses ends its transaction; the rest get another."""
        done: list[_Done] = []
        while asked:
            try:
                self._transact(lambda work: _through(work, asked, done), asked[0].at)
            except Exception as error:
                done.append(_Done(asked.popleft().future, error=error))
        return done


def _through(work: Repositories, asked: deque[_Asked], done: list[_Done]) -> None:
    """Read after read, in one transaction; what is done stays done when it is repeated."""
    while asked:
        try:
            found = _Done(asked[0].future, asked[0].read(work))
        except (SQLAlchemyError, UnicodeEncodeError):
            raise
        except Exception as error:
            found = _Done(asked[0].future, error=error)
        done.append(found)
        asked.popleft()


def _tell(done: list[_Done]) -> None:
    for future, result, error in done:
        if future.done():
            continue  # who asked has gone
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)
