"""Real workers of torchrun and of DeepSpeed's launcher: they end with the launcher, however it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from executor.processes import alive, descendants

pytestmark = [
    pytest.mark.torch,
    pytest.mark.launch,
    pytest.mark.skipif(sys.platform != "linux", reason="prctl(2) is Linux's"),
]
ROOT = Path(__file__).parents[3]
WORKER = """
import os, time
from pathlib import Path
Path("pid-" + os.environ["RANK"]).write_text(str(os.getpid()))
time.sleep(600)
"""
LAUNCHER = """
import os, sys
from pathlib import Path
from executor.processes import run_group
from executor.launch import Nodes, STARTERS
module, arguments = STARTERS[sys.argv[1]]
command = [sys.executable, "-m", module, *arguments(2, Nodes()), "worker.py"]
run_group(command, dict(os.environ), Path("."), sys.stderr)
"""


@pytest.mark.parametrize(
    ("starter", "number"),
    [("torchrun", signal.SIGKILL), ("torchrun", signal.SIGINT), ("deepspeed", signal.SIGKILL)],
)
def test_workers_end_with_their_launcher(tmp_path: Path, starter: str, number: signal.Signals) -> None:
    (tmp_path / "worker.py").write_text(WORKER, encoding="utf-8")
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, starter],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "DS_ACCELERATOR": "cpu"},
        stderr=subprocess.DEVNULL,
    )
    pids = [tmp_path / "pid-0", tmp_path / "pid-1"]
    deadline = time.monotonic() + 120
    while not all(path.exists() and path.read_text() for path in pids) and time.monotonic() < deadline:
        time.sleep(0.1)
    family = {*descendants(launcher.pid), *(int(path.read_text()) for path in pids)}
    assert len(family) >= 3
    launcher.send_signal(number)
    launcher.wait(60)
    deadline = time.monotonic() + 60
    while any(map(alive, family)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [pid for pid in family if alive(pid)]
