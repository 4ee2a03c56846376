"""The kind of database that the running test module uses; set by the fixture `databases`."""

import tempfile
from collections.abc import Callable
from pathlib import Path

_makers: list[Callable[[], str]] = []


def fresh() -> str:
    """The address of a new, upgraded database; outside of the fixture, of a file that the service upgrades itself."""
    return _makers[-1]() if _makers else f"sqlite:///{Path(tempfile.mkdtemp()) / 'test.db'}"


def use(maker: Callable[[], str]) -> None:
    _makers.append(maker)


def leave() -> None:
    _makers.pop()
