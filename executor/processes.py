"""Run the launched processes in a process group of their own and leave none behind."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import IO

GRACE_SECONDS = 15.0
"""Between SIGTERM and SIGKILL: time to write a last report."""
_POLL_SECONDS = 0.1
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(KeyboardInterrupt):
    """An operator ended the run by a signal."""

    def __init__(self, number: signal.Signals) -> None:
        """By signal `number`."""
        super().__init__(number.name)
        self.number = number


def run_group(argv: Sequence[str], environment: dict[str, str], cwd: Path, output: IO[str]) -> int:
    """Run `argv` to its end, forwarding its output line by line; the exit status (negative: the signal).

    Raises:
        Stopped: SIGINT, SIGTERM or SIGHUP came to this process; the group and every descendant are ended by then.
    """
    with _signals_interrupt():
        child = subprocess.Popen(  # an argument list, never a shell
            list(argv),
            env=environment,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            forward = threading.Thread(target=_forward, args=(child.stdout, output), daemon=True)
            forward.start()
            status = child.wait()
            forward.join(GRACE_SECONDS)
            return status
        finally:
            end(child)
            if child.stdout is not None:
                child.stdout.close()


def end(child: "subprocess.Popen[str]", grace_seconds: float = GRACE_SECONDS) -> None:
    """End the child, its group and all descendants: SIGTERM, a grace period, SIGKILL."""
    # Workers live in sessions of their own; they are found through their parents, before those are gone.
    family = {child.pid, *descendants(child.pid)} if child.poll() is None else group_members(child.pid)
    if not family:
        return
    _signal_group(child.pid, signal.SIGTERM)
    deadline = time.monotonic() + grace_seconds
    orphans_told = False
    while time.monotonic() < deadline and (child.poll() is None or any(map(alive, family - {child.pid}))):
        family |= set(descendants(child.pid))
        if child.poll() is not None and not orphans_told:  # a launcher ends its workers itself, if it still can
            _signal_each(family - {child.pid}, signal.SIGTERM)
            orphans_told = True
        time.sleep(_POLL_SECONDS)
    _signal_group(child.pid, signal.SIGKILL)
    _signal_each(family - {child.pid}, signal.SIGKILL)
    child.wait()


def descendants(pid: int) -> tuple[int, ...]:
    """All processes below `pid`, whatever their group or session."""
    children: dict[int, list[int]] = {}
    for process, (parent, _) in _processes().items():
        children.setdefault(parent, []).append(process)
    found, open_pids = [], [pid]
    while open_pids:
        below = children.get(open_pids.pop(), [])
        found += below
        open_pids += below
    return tuple(found)


def group_members(group: int) -> set[int]:
    """Processes of a process group."""
    return {process for process, (_, of) in _processes().items() if of == group}


def alive(pid: int) -> bool:
    """Whether `pid` runs (a zombie does not)."""
    return pid in _processes()


def started(pid: int) -> int | None:
    """When `pid` started, in clock ticks since boot; None where it does not run."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])  # proc(5): the 22nd field, after pid and comm the 20th


def _processes() -> dict[int, tuple[int, int]]:
    """Running processes: pid -> (parent, process group)."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            # proc(5): pid (comm) state ppid pgrp ...; comm may hold anything, so read after its last parenthesis.
            state, parent, group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
            if state != "Z":
                found[int(entry.name)] = (int(parent), int(group))
    return found


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _signal_each(processes: set[int], number: int) -> None:
    for pid in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _forward(source: IO[str] | None, target: IO[str]) -> None:
    for line in source or ():
        target.write(line)
        target.flush()


@contextlib.contextmanager
def _signals_interrupt() -> Iterator[None]:
    """The first of SIGINT, SIGTERM and SIGHUP is raised in the main thread; further ones do not disturb the ending.

    One that the caller ignores (nohup) stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    told = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal told
        if not told:
            told = True
            raise Stopped(signal.Signals(number))

    asked = [number for number in _STOPPING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in asked}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
