"""Real processes: forwarded output, exit codes, and nothing left running."""

import io
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from executor.processes import alive, descendants, run_group

pytestmark = [pytest.mark.launch, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]
ROOT = Path(__file__).parents[3]

# A parent whose child leaves its session, as torchrun's workers do, and notes its pid.
RUNAWAY = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
open("pid", "w").write(str(child.pid))
print("started", flush=True)
time.sleep(600)
"""


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def test_output_is_forwarded_and_the_status_returned(tmp_path: Path) -> None:
    output = io.StringIO()
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"
    assert run_group([sys.executable, "-c", code], dict(os.environ), tmp_path, output) == 7
    assert sorted(output.getvalue().split()) == ["err", "out"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_launcher_leaves_nothing_running(tmp_path: Path, number: signal.Signals) -> None:
    launcher = textwrap.dedent(f"""
        import os, signal, sys
        from pathlib import Path
        from executor.processes import run_group
        signal.signal({int(number)}, signal.default_int_handler)  # whatever this process was started to ignore
        try:
            run_group([sys.executable, "-c", {RUNAWAY!r}], dict(os.environ), Path("."), sys.stdout)
        except KeyboardInterrupt:
            sys.exit(130)
    """)
    process = subprocess.Popen(
        [sys.executable, "-c", launcher], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, text=True
    )
    assert wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
    below = {*descendants(process.pid), int((tmp_path / "pid").read_text())}
    assert len(below) >= 2
    process.send_signal(number)
    assert process.wait(30) == 130
    assert wait_for(lambda: not any(map(alive, below)))


def test_a_child_that_exits_does_not_leave_its_group(tmp_path: Path) -> None:
    code = """
import subprocess, sys
quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], **quiet)
open("pid", "w").write(str(child.pid))
"""
    assert run_group([sys.executable, "-c", code], dict(os.environ), tmp_path, io.StringIO()) == 0
    pid = int((tmp_path / "pid").read_text())
    assert wait_for(lambda: not alive(pid))
