"""Which process failed first: the others of its group end by what its end does to them, and that is no cause."""

import json
import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from executor.environment import FAILURE_FILE
from executor.measured import RankReport

_CONSEQUENCE: Final = re.compile(
    r"connection (closed|reset|refused|was aborted)|broken pipe|socket|timed out|tcpstore|gloo|nccl|dist\w*error",
    re.IGNORECASE,
)
"""What a process says whose peer is gone. A message of these is blamed where no other process has another one."""
_NEVER_ENDED: Final = float("inf")


def killed_ranks(reports: Path) -> dict[int | None, int]:
    """Rank -> signal, of the processes that a signal had ended when the launcher found the first failure.

    None stands for the rank that DeepSpeed's launcher does not tell.
    """
    try:
        told = json.loads((reports / FAILURE_FILE).read_bytes())
        return {one["rank"]: -int(one["exit_code"]) for one in told if int(one["exit_code"]) < 0}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def signal_of(rank: RankReport, killed: Mapping[int | None, int]) -> int | None:
    """The signal that ended a process, if one did; one of an unknown rank ended one that left no last report."""
    return killed.get(rank.rank, killed.get(None) if rank.outcome == "killed" else None)


def by_cause(ranks: Sequence[RankReport], killed: Mapping[int | None, int]) -> list[RankReport]:
    """The processes that ended badly, the cause first, then by time."""
    failed = [rank for rank in ranks if rank.outcome != "ok"]
    return sorted(failed, key=lambda rank: (_order(rank, signal_of(rank, killed)), rank.ended_at or _NEVER_ENDED))


def _order(rank: RankReport, signalled: int | None) -> int:
    """What says most of a cause comes first; what says as much is told apart by time."""
    if rank.outcome in ("out_of_memory", "diverged", "slow"):
        return 0
    # torchrun ends the others by SIGTERM, and a library that finds its peer gone may abort.
    if signalled not in (None, signal.SIGTERM, signal.SIGABRT):
        return 1
    if rank.outcome == "error":
        return 4 if _CONSEQUENCE.search(rank.error or "") else 2
    return 3 if signalled == signal.SIGABRT else 5


def described(rank: RankReport) -> str:
    """One process that ended badly, as a line."""
    return f"rank {rank.rank}: {rank.outcome}: {rank.error or 'no message'} (step {rank.steps_done})"
