"""Runs that are killed outright still tell the service their last state; the service may be away meanwhile."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from executor.processes import alive, descendants
from service.measuring import MeasurementOrder
from tests.unit.executor.plans import feasible

pytestmark = [
    pytest.mark.torch,
    pytest.mark.launch,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]
ROOT = Path(__file__).parents[3]
DIES = """
import os, signal, time
from pathlib import Path
from executor.instrument import Instrument
with Instrument.from_environment() as run:
    for index in range(100):
        with run.step():
            time.sleep(0.4)
        run.record_loss(5.0 - index)
        if index == 4:
            Path("started-" + os.environ["RANK"]).touch()
            {ending}
"""
KILLED = DIES.format(ending='if os.environ["RANK"] == "1": os.kill(os.getpid(), signal.SIGKILL)')
STAYS = DIES.format(ending="time.sleep(600)")
FULL_MEMORY = DIES.format(
    ending="""raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes")"""
)


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        MeasurementOrder.model_validate(body)  # what the real service takes
        self.server.found.append((self.path, self.headers["Idempotency-Key"], body))  # type: ignore[attr-defined]
        self.send_response(201)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def service() -> Iterator[tuple[str, list[Any]]]:
    server = HTTPServer(("127.0.0.1", 0), _Handler)
    server.found = []  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", server.found  # type: ignore[attr-defined]
    server.shutdown()
    server.server_close()


def command(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "executor.cli", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "MESHWRIGHT_SPOOL": str(folder / "spool")},
        text=True,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def run(folder: Path, script: str, service: str) -> "subprocess.Popen[str]":
    (folder / "plan.json").write_text(feasible().to_json(), encoding="utf-8")
    (folder / "train.py").write_text(script, encoding="utf-8")
    return command(folder, "run", "plan.json", "--out", "out", "--service", service, "--", "train.py")


def test_a_killed_rank_is_reported_with_its_signal_and_last_state(
    tmp_path: Path, service: tuple[str, list[Any]]
) -> None:
    address, found = service
    _, talk = run(tmp_path, KILLED, address).communicate(timeout=200)
    ((path, _, body),) = found
    assert path == "/v1/plans/plan-1/measurements"
    assert body["outcome"] == "failed"
    assert "outcome=killed phase=step signal=9" in body["notes"]
    assert body["steps"] >= 1
    assert "1 sent" in talk


def test_out_of_memory_names_size_and_phase_and_waits_for_the_service(
    tmp_path: Path, service: tuple[str, list[Any]]
) -> None:
    address, found = service
    process = run(tmp_path, FULL_MEMORY, "http://127.0.0.1:9")
    _, talk = process.communicate(timeout=200)
    assert process.returncode == 1
    assert "1 waiting" in talk
    later = command(tmp_path, "report", "--service", address)
    assert "1 sent" in later.communicate(timeout=60)[1]
    ((_, _, body),) = found
    assert body["outcome"] == "oom"
    assert "outcome=out_of_memory phase=step requested_bytes=4096" in body["notes"]
    assert body["steps"] == 5


def test_an_operators_stop_reads_as_one(tmp_path: Path, service: tuple[str, list[Any]]) -> None:
    launcher = run(tmp_path, STAYS, service[0])
    deadline = time.monotonic() + 150
    while not (tmp_path / "started-0").exists() or not (tmp_path / "started-1").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    family = descendants(launcher.pid)
    launcher.send_signal(signal.SIGTERM)
    _, talk = launcher.communicate(timeout=60)
    assert launcher.returncode == 1
    assert not any(map(alive, family))
    assert "Traceback" not in talk
    assert talk.splitlines()[-1].startswith("meshwright-exec: the training was stopped by SIGTERM after ")
    assert str(tmp_path / "out") in talk.splitlines()[-1]
    report = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    assert (report["outcome"], report["signal"]) == ("stopped", 15)


def test_a_killed_launcher_is_reported_by_the_next_command(tmp_path: Path, service: tuple[str, list[Any]]) -> None:
    address, found = service
    launcher = run(tmp_path, STAYS, address)
    deadline = time.monotonic() + 150
    while not (tmp_path / "started-0").exists() or not (tmp_path / "started-1").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    family = descendants(launcher.pid)
    launcher.send_signal(signal.SIGKILL)
    launcher.communicate(timeout=60)
    while any(map(alive, family)) and time.monotonic() < deadline + 60:
        time.sleep(0.1)
    for sent in ("1 sent", "0 sent"):
        assert sent in command(tmp_path, "report", "--service", address).communicate(timeout=60)[1]
    ((_, _, body),) = found
    assert body["outcome"] == "failed"
    assert "outcome=killed" in body["notes"]
    assert body["steps"] >= 1
    assert json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))["outcome"] == "killed"
