"""What the launchers of one node share, each run as a module: `python -m executor.torchrun`, `... .deepspeed_launcher`.

Both start workers that a launcher killed outright would leave training. So the kernel is asked to send SIGTERM when the
parent dies (prctl(2), PR_SET_PDEATHSIG), and the launcher then ends its workers.
"""

import ctypes
import json
import os
import signal
import sys
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


def tell_failure(rank: int | None, exit_code: int) -> None:
    """Leave the first process that failed, and its exit code, for the report: a killed one cannot do so itself."""
    folder = os.environ.get(REPORT)
    if folder and Path(folder).is_dir():
        write_text(Path(folder) / FAILURE_FILE, json.dumps({"rank": rank, "exit_code": exit_code}))
