"""What the launchers of one node share, each run as a module: `python -m executor.torchrun`, `... .deepspeed_launcher`.

Both start workers that a launcher killed outright would leave training. So the kernel is asked to send SIGTERM when the
parent dies (prctl(2), PR_SET_PDEATHSIG), and the launcher then ends its workers.
"""

import ctypes
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from executor.environment import FAILURE_FILE, REPORT
from executor.files import write_text

_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Tie this process to its parent."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before the request took hold
            raise SystemExit(1)


def tell_failures(failures: Sequence[tuple[int | None, int]]) -> None:
    """Leave the processes that had failed, rank and exit code, for the report: a killed one cannot do so itself."""
    folder = os.environ.get(REPORT)
    if folder and failures and Path(folder).is_dir():
        told = [{"rank": rank, "exit_code": code} for rank, code in failures]
        write_text(Path(folder) / FAILURE_FILE, json.dumps(told))
