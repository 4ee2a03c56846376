"""Whether the event loop goes on: a task that wakes on time while nothing blocks it, and tells how late it was."""

import asyncio
import time
from contextlib import suppress
from typing import Final

from service import metrics

PAUSE_SECONDS: Final = 0.05


class Pulse:
    """Of the event loop in which it was started."""

    def __init__(self) -> None:
        """Nothing beats yet."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to beat."""
        self._task = asyncio.create_task(_beating())

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task


async def _beating() -> None:
    while True:
        due = time.perf_counter() + PAUSE_SECONDS
        await asyncio.sleep(PAUSE_SECONDS)
        metrics.LOOP_STALL.observe(max(0.0, time.perf_counter() - due))
