"""Files the executor writes: complete or absent, and readable by their owner only."""

import os
import tempfile
from pathlib import Path

OWNER_ONLY_DIRECTORY = 0o700


def private_directory(path: Path) -> Path:
    """Make `path` (and its parents); a directory made here is its owner's only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=OWNER_ONLY_DIRECTORY, exist_ok=True)
    return path


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
