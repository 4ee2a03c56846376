"""Who waits for a solve: woken at once by this process, and by looking where another process works on it."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from service.solving.worker import Progress


class Changes:
    """Changes of one solve."""

    def __init__(self) -> None:
        """None yet."""
        self.event = asyncio.Event()

    async def next(self, seconds: float) -> None:
        """Until something has happened since the last call, at most so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.event.wait()
        self.event.clear()


class Watch:
    """Latest progress of the solves of this process, and the waiters of all."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._waiters: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._progress: dict[str, Progress] = {}
        self.closing = False
        """Whether the service has been told to end: nobody waits any longer, whatever a solve does."""

    def close(self) -> None:
        """Send everybody who waits home."""
        self.closing = True
        for solve_id in list(self._waiters):
            self._wake(solve_id)

    def progressed(self, solve_id: str, progress: Progress) -> None:
        """A solve of this process got on."""
        self._progress[solve_id] = progress
        self._wake(solve_id)

    def ended(self, solve_id: str) -> None:
        """A solve ended, or left this process."""
        self._progress.pop(solve_id, None)
        self._wake(solve_id)

    def woken(self, solve_id: str) -> None:
        """Something else happened to a solve: whoever waits looks again."""
        self._wake(solve_id)

    def progress(self, solve_id: str) -> Progress | None:
        """How far a solve of this process is."""
        return self._progress.get(solve_id)

    @contextmanager
    def over(self, solve_id: str) -> "Iterator[Changes]":
        """What happens to a solve from now on. Begin it before looking, so that nothing falls in between."""
        changes = Changes()
        waiters = self._waiters[solve_id]
        waiters.add(changes.event)
        try:
            yield changes
        finally:
            waiters.discard(changes.event)
            if not waiters:
                self._waiters.pop(solve_id, None)

    def _wake(self, solve_id: str) -> None:
        for event in self._waiters.get(solve_id, ()):
            event.set()
