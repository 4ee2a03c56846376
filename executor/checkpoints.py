"""Checkpoints at accumulation boundaries: whole or absent, and readable under another micro-batch, recompute or mesh.

    keeper = Keeper.from_environment()
    done = keeper.restore(trainer)              # steps that an earlier attempt has done; 0 at first
    for index in range(done, steps):
        ...                                     # one optimizer step
        keeper.keep(trainer, index + 1)

Under `meshwright-exec run --recover` the launcher names the folder, the same for every attempt; without it nothing is
kept.
"""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, Self

from executor.environment import CHECKPOINT_EVERY, CHECKPOINTS
from executor.files import private_directory

_NAME: Final = re.compile(r"step-(\d{8})")
KEPT: Final = 2
"""Checkpoints that stay: the newest, and the one before in case the newest shows a fault."""


class Savable(Protocol):
    """A trainer whose weights and optimizer states go to a folder and come back; every process takes part."""

    def save(self, folder: Path) -> None:
        """Write."""

    def load(self, folder: Path) -> None:
        """Read what `save` wrote, perhaps under another layout."""


@dataclass(frozen=True, kw_only=True)
class Keeper:
    """Writes and finds checkpoints of one job."""

    folder: Path | None
    every: int
    """Optimizer steps between two checkpoints."""

    @classmethod
    def from_environment(cls) -> Self:
        """As the launcher asked through the environment."""
        folder = os.environ.get(CHECKPOINTS)
        return cls(folder=Path(folder) if folder else None, every=int(os.environ.get(CHECKPOINT_EVERY, "0")))

    def restore(self, trainer: Savable) -> int:
        """Load the newest checkpoint, if there is one; the number of steps done before it."""
        found = newest(self.folder) if self.folder else None
        if found is None:
            return 0
        trainer.load(found)
        return steps_of(found)

    def due(self, steps: int) -> bool:
        """Whether `keep` writes after so many steps."""
        return self.folder is not None and self.every > 0 and steps % self.every == 0

    def keep(self, trainer: Savable, steps: int) -> None:
        """After an optimizer step: write a checkpoint where one is due."""
        import torch.distributed as dist

        if self.folder is None or not self.due(steps):
            return
        # The name says that it is whole, so it is given last.
        partial, whole = self.folder / f"partial-{steps:08d}", self.folder / f"step-{steps:08d}"
        first = dist.get_rank() == 0
        if first:
            private_directory(self.folder)
            shutil.rmtree(partial, ignore_errors=True)
            private_directory(partial)
        dist.barrier()
        trainer.save(partial)
        dist.barrier()
        if first:
            shutil.rmtree(whole, ignore_errors=True)
            partial.rename(whole)
            for old in _all(self.folder)[:-KEPT]:
                shutil.rmtree(old)
        dist.barrier()


def newest(folder: Path) -> Path | None:
    """The whole checkpoint of most steps."""
    return _all(folder)[-1] if folder.is_dir() and _all(folder) else None


def steps_of(checkpoint: Path) -> int:
    """Optimizer steps done before it was written."""
    found = _NAME.fullmatch(checkpoint.name)
    assert found is not None
    return int(found[1])


def _all(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))
