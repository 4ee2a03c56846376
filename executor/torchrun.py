"""torchrun that ends with the launcher, run as `python -m executor.torchrun`.

torchrun starts each worker in a session of its own, so a launcher that is killed outright would leave them training.
The kernel is asked to send SIGTERM when the parent dies (prctl(2), PR_SET_PDEATHSIG); torchrun then ends its workers.
"""

import ctypes
import json
import os
import runpy
import signal
import sys
from pathlib import Path

from executor.environment import FAILURE_FILE, REPORT
from executor.files import write_text

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie this process to its parent, then become torchrun."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before the request took hold
            raise SystemExit(1)
    try:
        runpy.run_module("torch.distributed.run", run_name="__main__", alter_sys=True)
    except Exception as error:
        _tell(error)
        raise


def _tell(error: Exception) -> None:
    """Leave the first process that failed, and its exit code, for the launcher: a killed one cannot do so itself."""
    folder, first = os.environ.get(REPORT), getattr(error, "get_first_failure", None)
    if folder and first is not None and Path(folder).is_dir():
        rank, failure = first()
        told = {"rank": rank, "exit_code": failure.exitcode}
        write_text(Path(folder) / FAILURE_FILE, json.dumps(told))


if __name__ == "__main__":
    main()
