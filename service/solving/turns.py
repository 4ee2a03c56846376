"""Projects in turn within this process, where nothing is queued in the database: estimates."""

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count


class Turns:
    """So many at a time: next is the project with the fewest under way, then the one whose last turn is longest ago."""

    def __init__(self, places: int) -> None:
        """All places are free."""
        self._places = places
        self._under_way: Counter[str] = Counter()
        self._waiting: defaultdict[str, deque[asyncio.Future[None]]] = defaultdict(deque)
        self._number = count(1)
        self._last: Counter[str] = Counter()
        """Numbers of the projects' last turns."""

    @asynccontextmanager
    async def of(self, project: str) -> AsyncIterator[None]:
        """A turn of a project, as soon as it has one."""
        if self._under_way.total() < self._places:
            self._begin(project)
        else:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting[project].append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():  # it was given, and nobody takes it
                    self._end(project)
                raise
        try:
            yield
        finally:
            self._end(project)

    def _begin(self, project: str) -> None:
        self._under_way[project] += 1
        self._last[project] = next(self._number)

    def _end(self, project: str) -> None:
        """Give the place to whoever is next and still waits."""
        self._under_way[project] -= 1
        while waiting := [name for name, turns in self._waiting.items() if turns]:
            following = min(waiting, key=lambda name: (self._under_way[name], self._last[name]))
            turn = self._waiting[following].popleft()
            if not turn.done():
                self._begin(following)
                turn.set_result(None)
                return
