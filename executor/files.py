"""Files the executor writes: complete or absent, and readable by their owner only."""

import os
import tempfile
from pathlib import Path

from executor.errors import PlanRefused

OWNER_ONLY_DIRECTORY = 0o700
_PROOF_BYTES = 2**16
"""What a place must take before anything is started: more than a disk that is full to the last block has."""


def private_directory(path: Path) -> Path:
    """Make `path` (and its parents); a directory made here is its owner's only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=OWNER_ONLY_DIRECTORY, exist_ok=True)
    return path


def empty_directory(path: Path) -> Path:
    """Make `path` for one run alone.

    Raises:
        PlanRefused: it holds something, or cannot be written.
    """
    try:
        if path.is_dir() and any(path.iterdir()):
            raise PlanRefused(f"{path} is not empty; give every run a directory of its own")
        private_directory(path)
    except OSError as error:
        raise PlanRefused(f"--out {path} cannot be written: {said(error)}") from None
    check_writable(path / "report.json")
    return path


def check_writable(path: Path) -> None:
    """Try to write a file beside the one that will be `path`.

    Raises:
        PlanRefused: there is no such place, it is full, or it may not be written.
    """
    try:
        if path.is_dir():
            raise PlanRefused(f"--out {path} is a directory, where a file is to be written")
        with tempfile.NamedTemporaryFile(dir=path.parent, buffering=0) as file:
            file.write(b" " * _PROOF_BYTES)
    except OSError as error:
        raise PlanRefused(f"--out {path} cannot be written: {said(error)}") from None


def said(error: OSError) -> str:
    """The system's words for what went wrong."""
    return (error.strerror or type(error).__name__).lower()


def write_text(path: Path, text: str, *, durable: bool = True) -> Path:
    """Replace `path` by `text` in one step: a reader sees the old file or the whole new one. Mode 0600.

    What need not outlive the machine, only the process, is not waited for on the disk.
    """
    # mkstemp creates the file 0600 in the same directory, so the rename cannot cross file systems.
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path
