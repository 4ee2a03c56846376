"""torchrun that ends with the launcher, run as `python -m executor.torchrun`.

torchrun starts each worker in a session of its own, so a launcher that is killed outright would leave them training.
The kernel is asked to send SIGTERM when the parent dies (prctl(2), PR_SET_PDEATHSIG); torchrun then ends its workers.
"""

import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie this process to its parent, then become torchrun."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before the request took hold
            raise SystemExit(1)
    runpy.run_module("torch.distributed.run", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
