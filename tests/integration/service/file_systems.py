"""Small and read-only file systems that only the processes put behind them see; no privileges are needed.

A namespace lives as long as its first process, so that services within may be killed and started again.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NOBODY = 65534


def as_user(number: int) -> tuple[str, ...]:
    """Within a namespace everybody is root; behind this, a user without capabilities who owns the same files."""
    return ("unshare", f"--map-user={number}", f"--map-group={number}")


class Namespace:
    """A view of the file systems of this machine."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    @property
    def inside(self) -> tuple[str, ...]:
        """What a command is put behind to see it."""
        return ("nsenter", f"--target={self.pid}", "--user", "--mount", "--preserve-credentials")

    def seen(self, path: Path) -> Path:
        """A path of it, from outside."""
        return Path(f"/proc/{self.pid}/root{path}")


class SmallDisk(Namespace):
    """With a disk of so many bytes at `folder`."""

    def __init__(self, pid: int, folder: Path) -> None:
        super().__init__(pid)
        self.folder = folder
        self._filling = self.seen(folder) / "filling"

    def fill(self) -> None:
        """Leave not a byte free."""
        file = os.open(self._filling, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            for size in (2**16, 2**12, 1):
                try:
                    while True:
                        os.write(file, b"x" * size)
                except OSError:
                    continue
        finally:
            os.close(file)

    def free(self) -> None:
        """Make room again."""
        self._filling.unlink()


@contextmanager
def _namespace(steps: str, *arguments: str) -> Iterator[int]:
    """A process for which `steps` have been done; skipped where the kernel lets nobody make such a thing."""
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", f"{steps} && echo made && exec sleep infinity"]
    try:
        process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except FileNotFoundError:
        pytest.skip("unshare (util-linux) is not installed")
    with process:
        assert process.stdout is not None
        try:
            if process.stdout.readline() != b"made\n":
                pytest.skip("this machine lets nobody make file systems of their own")
            yield process.pid
        finally:
            process.kill()


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[SmallDisk]:
    """Of `size` bytes, at a folder that is there."""
    with _namespace(f'mount -t tmpfs -o size={size} none "$0"', str(folder)) as pid:
        yield SmallDisk(pid, folder)


@contextmanager
def read_only(path: Path) -> Iterator[Namespace]:
    """Where a file, or a folder with all that is in it, cannot be written."""
    with _namespace('mount --bind "$0" "$0" && mount -o remount,bind,ro "$0"', str(path)) as pid:
        yield Namespace(pid)
