"""Files appear whole and belong to their owner alone."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from executor.files import private_directory, write_text


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_files_and_directories_are_the_owners_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        directory = private_directory(tmp_path / "run")
        path = write_text(directory / "plan.json", "{}")
    finally:
        os.umask(before)
    assert (mode(directory), mode(path)) == (0o700, 0o600)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: Any) -> None:
    path = write_text(tmp_path / "report.json", "old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_text(path, "new")
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]
