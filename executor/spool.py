"""Measurements on disk until the service has them: complete or absent, in order, sent as often as needed, kept once.

    runs/ID.json            a run in progress: whoever finds its launcher dead reports it
    waiting/TIME-ID.json    a measurement to be sent
    refused/TIME-ID.json    one that the service found wrong, with its reason

A measurement's id is that of its run: it is the idempotency key, so that an answer that got lost does no harm.
"""

import contextlib
import fcntl
import os
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cost_models.specs.base import Spec
from executor.errors import PlanRefused, ServiceAway, ServiceRefused
from executor.files import private_directory, said, write_text
from executor.processes import started

DIRECTORY: Final = "MESHWRIGHT_SPOOL"
"""Environment variable with the spool's place."""
Post = Callable[[str, dict[str, Any], str], object]
"""path, body, idempotency key."""


class Waiting(Spec):
    """A measurement to be sent."""

    id: str
    path: str
    body: dict[str, Any]
    refused: str | None = None


class OpenRun(Spec):
    """A run in progress. A process id is used again; together with its start it is not."""

    id: str
    directory: str
    launcher: int
    launcher_started: int


@dataclass(frozen=True, slots=True)
class Sent:
    """What a replay did."""

    sent: int = 0
    refused: int = 0
    waiting: int = 0
    why: str | None = None
    """Why some wait."""
    wrong: tuple[str, ...] = ()
    """What was put aside, each with its reason."""


class Spool:
    """One directory. Several processes may use it at once."""

    def __init__(self, root: Path | None = None) -> None:
        """Make the directories.

        Raises:
            PlanRefused: they cannot be made.
        """
        self.root = root or default_root()
        try:
            private_directory(self.root)
            self._runs, self._waiting, self._refused = (
                private_directory(self.root / name) for name in ("runs", "waiting", "refused")
            )
        except OSError as error:
            raise PlanRefused(f"{DIRECTORY} {self.root} cannot be written: {said(error)}") from None

    def open_run(self, directory: Path) -> str:
        """Say that this process launches a run; its id."""
        run = OpenRun(
            id=uuid.uuid4().hex,
            directory=str(directory),
            launcher=os.getpid(),
            launcher_started=started(os.getpid()) or 0,
        )
        _durable(self._runs / f"{run.id}.json", run.model_dump_json())
        return run.id

    def dead_runs(self) -> Iterator[OpenRun]:
        """Runs whose launcher is gone."""
        for path in sorted(self._runs.glob("*.json")):
            with contextlib.suppress(ValueError, FileNotFoundError):
                run = OpenRun.model_validate_json(path.read_bytes())
                if started(run.launcher) != run.launcher_started:
                    yield run

    def close_run(self, run_id: str, path: str, body: dict[str, Any] | None) -> None:
        """Keep the run's measurement for sending, then forget the run. In this order: dying between does it twice,
        under one id.
        """
        if body is not None and not any(self._waiting.glob(f"*-{run_id}.json")):
            waiting = Waiting(id=run_id, path=path, body=body)
            _durable(self._waiting / f"{time.time_ns():020d}-{run_id}.json", waiting.model_dump_json())
        (self._runs / f"{run_id}.json").unlink(missing_ok=True)

    def replay(self, post: Post) -> Sent:
        """Send what waits, oldest first, up to the first that finds the service away."""
        sent = 0
        wrong: list[str] = []
        with self._locked():
            paths = sorted(self._waiting.glob("*.json"))
            for index, path in enumerate(paths):
                try:
                    waiting = Waiting.model_validate_json(path.read_bytes())
                    post(waiting.path, waiting.body, waiting.id)
                    sent += 1
                except ServiceAway as error:
                    return Sent(sent, len(wrong), len(paths) - index, str(error), tuple(wrong))
                except ServiceRefused as error:
                    kept = waiting.model_copy(update={"refused": str(error)})
                    _durable(self._refused / path.name, kept.model_dump_json(indent=2))
                    wrong.append(f"{self._refused / path.name}: {error}")
                except ValueError:  # damaged by something else than us: kept for a person to read
                    (self._refused / path.name).write_bytes(path.read_bytes())
                    wrong.append(f"{self._refused / path.name}: it is no measurement as this release writes it")
                path.unlink()
        return Sent(sent, len(wrong), wrong=tuple(wrong))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One replay at a time: two would send out of order."""
        with (self.root / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def default_root() -> Path:
    """MESHWRIGHT_SPOOL, else the user's state directory."""
    if stated := os.environ.get(DIRECTORY):
        return Path(stated)
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "meshwright" / "spool"


def _durable(path: Path, text: str) -> None:
    """Written through to the disk, its name in the directory too."""
    write_text(path, text)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
