"""Turns within a process: fair, never more than there are places, and none is lost."""

import asyncio
from collections.abc import Awaitable, Callable

from service.solving.turns import Turns


async def asked(turns: Turns, order: list[str], projects: str, during: Callable[[], Awaitable[object]]) -> None:
    async def one(project: str) -> None:
        async with turns.of(project):
            order.append(project)
            await during()

    await asyncio.gather(*(one(project) for project in projects))


def test_projects_take_turns() -> None:
    order: list[str] = []
    asyncio.run(asked(Turns(1), order, "aaaaaabbc", lambda: asyncio.sleep(0)))
    assert "".join(order) == "abcabaaaa"


def test_no_more_than_there_are_places() -> None:
    turns, order, most = Turns(2), list[str](), list[int]()

    async def during() -> None:
        most.append(turns._under_way.total())
        await asyncio.sleep(0)

    asyncio.run(asked(turns, order, "aaaabb", during))
    assert max(most) == 2
    assert sorted(order) == sorted("aaaabb")
    assert turns._under_way.total() == 0


def test_a_turn_of_somebody_who_has_gone_is_the_next_ones() -> None:
    async def run() -> list[str]:
        turns, order, gate = Turns(1), list[str](), asyncio.Event()

        async def one(name: str) -> None:
            async with turns.of(name):
                order.append(name)
                await gate.wait()
            if name == "first":
                given.cancel()  # its turn has come, and it has not run since

        first, gone, given, last = (asyncio.create_task(one(name)) for name in ("first", "gone", "given", "last"))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        gate.set()
        await first
        await asyncio.wait_for(last, 5)
        return order

    assert asyncio.run(run()) == ["first", "last"]
