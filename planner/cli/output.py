"""Where text goes: the result on standard output, everything else on standard error."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

Report = Callable[[str], None]
"""Takes one line about how far long work has come."""
Counted = Callable[[int, int], None]
"""Takes how many of how many are done."""
FIRST_SECONDS = 1.0
"""How soon the first line of progress comes."""
PLAIN_WIDTH = 120
"""Columns where standard output is no terminal."""


def result_console() -> "Console":
    """Standard output for views that mark up their own text and escape everyone else's."""
    return _console(markup=True)


def plain_console() -> "Console":
    """Standard output for tables of data, in which brackets are brackets."""
    return _console(markup=False)


def _console(*, markup: bool) -> "Console":
    """Plain where standard output is no terminal or NO_COLOR is set; as wide as COLUMNS, where that is set."""
    from rich.console import Console

    from planner.settings import settings

    known = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    width = settings().width or (None if known else PLAIN_WIDTH)
    return Console(width=width, highlight=False, markup=markup, emoji=False)


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def print_text(text: str) -> None:
    """Text on standard output, as it is."""
    sys.stdout.write(text)


def say(text: str) -> None:
    """A line of talk on standard error."""
    sys.stderr.write(text + "\n")


@contextmanager
def progress(what: str, *, quiet: bool) -> Iterator[Report | None]:
    """Report long work on standard error: a live line on a terminal, else a line every few seconds."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.markup import escape

        with Console(stderr=True).status(what) as status:
            yield lambda text: status.update(escape(f"{what}: {text}"))
    else:
        yield _occasional(what)


def _occasional(what: str) -> Report:
    from planner.settings import settings

    every = settings().progress_seconds
    last = time.monotonic() - every + min(every, FIRST_SECONDS)

    def report(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= every:
            last = time.monotonic()
            say(f"{what}: {text}")

    return report
