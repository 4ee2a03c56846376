"""Measurements survive crashes and outages: in order, once, and never half written."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from executor.endings import outcome_of, requested_bytes
from executor.errors import ServiceAway, ServiceRefused
from executor.spool import Sent, Spool, Waiting

ROOT = Path(__file__).parents[3]


class Service:
    """Answers as told; keeps one of each key."""

    def __init__(self, *, away: bool = False, refuses: tuple[str, ...] = ()) -> None:
        self.away, self.refuses = away, refuses
        self.kept: dict[str, Any] = {}

    def post(self, path: str, body: dict[str, Any], key: str) -> None:
        if self.away:
            raise ServiceAway("not now")
        if body["steps"] in self.refuses:
            raise ServiceRefused("no such plan")
        assert self.kept.setdefault(key, body) == body


def keep(spool: Spool, *steps: str) -> list[str]:
    """A finished run for each."""
    runs = []
    for step in steps:
        runs.append(spool.open_run(Path("/run")))
        spool.close_run(runs[-1], "/v1/plans/p/measurements", {"steps": step})
    return runs


def test_what_waits_is_sent_in_order_when_the_service_is_back(tmp_path: Path) -> None:
    spool, service = Spool(tmp_path), Service(away=True)
    runs = keep(spool, "1", "2", "3")
    assert spool.replay(service.post) == Sent(waiting=3, why="not now")
    service.away = False
    assert spool.replay(service.post) == Sent(sent=3)
    assert list(service.kept) == runs
    assert [body["steps"] for body in service.kept.values()] == ["1", "2", "3"]
    assert spool.replay(service.post) == Sent()


def test_a_lost_answer_sends_the_same_again_under_the_same_key(tmp_path: Path) -> None:
    spool, service = Spool(tmp_path), Service()

    def answer_lost(path: str, body: dict[str, Any], key: str) -> None:
        service.post(path, body, key)
        raise ServiceAway("connection reset")

    (run,) = keep(spool, "1")
    assert spool.replay(answer_lost).waiting == 1
    assert spool.replay(service.post).sent == 1
    assert list(service.kept) == [run]


def test_a_refused_measurement_is_put_aside_with_its_reason(tmp_path: Path) -> None:
    spool, service = Spool(tmp_path), Service(refuses=("2",))
    keep(spool, "1", "2", "3")
    done = spool.replay(service.post)
    (path,) = (tmp_path / "refused").iterdir()
    assert done == Sent(sent=2, refused=1, wrong=(f"{path}: no such plan",))
    assert Waiting.model_validate_json(path.read_bytes()).refused == "no such plan"


def test_a_damaged_file_does_not_stop_the_others(tmp_path: Path) -> None:
    spool, service = Spool(tmp_path), Service()
    (tmp_path / "waiting" / "00000000000000000000-x.json").write_text("{half", encoding="utf-8")
    keep(spool, "1")
    done = spool.replay(service.post)
    assert (done.sent, done.refused) == (1, 1)
    assert done.wrong[0].startswith(str(tmp_path / "refused" / "00000000000000000000-x.json"))


def test_closing_a_run_twice_keeps_one_measurement(tmp_path: Path) -> None:
    spool, service = Spool(tmp_path), Service()
    (run,) = keep(spool, "1")
    spool.close_run(run, "/v1/plans/p/measurements", {"steps": "1"})
    assert spool.replay(service.post) == Sent(sent=1)


def test_files_are_their_owners_only(tmp_path: Path) -> None:
    keep(Spool(tmp_path / "spool"), "1")
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "spool").rglob("*.json"))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_run_is_dead_when_its_launcher_is(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    mine = spool.open_run(Path("/mine"))
    code = f"from executor.spool import Spool; Spool(__import__('pathlib').Path({str(tmp_path)!r})).open_run('/theirs')"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert [run.directory for run in spool.dead_runs()] == ["/theirs"]
    assert mine not in {run.id for run in spool.dead_runs()}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_killed_outright_while_writing_it_leaves_whole_files(tmp_path: Path) -> None:
    code = textwrap.dedent(f"""
        from pathlib import Path
        from executor.spool import Spool
        spool = Spool(Path({str(tmp_path)!r}))
        for number in range(100000):
            run = spool.open_run(Path("/run"))
            spool.close_run(run, "/v1/x", {{"steps": str(number), "notes": "x" * 3000}})
    """)
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(ROOT)})
        before = len(list((tmp_path / "waiting").glob("*.json"))) if (tmp_path / "waiting").is_dir() else 0
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if (tmp_path / "waiting").is_dir() and len(list((tmp_path / "waiting").glob("*.json"))) > before + 5:
                break
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    service = Service()
    found = Spool(tmp_path).replay(service.post)
    assert found.refused == 0
    assert found.sent == len(service.kept) > 15


@pytest.mark.parametrize(
    ("error", "outcome", "size"),
    [
        (None, "ok", None),
        (MemoryError("no room"), "out_of_memory", None),
        (RuntimeError("CUDA error: device-side assert"), "error", None),
        (
            RuntimeError(
                "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8192 bytes."
            ),
            "out_of_memory",
            8192,
        ),
        (
            type("OutOfMemoryError", (RuntimeError,), {})("Tried to allocate 2.50 GiB. GPU 0"),
            "out_of_memory",
            5 * 2**29,
        ),
        (KeyboardInterrupt(), "killed", None),
        (SystemExit(0), "ok", None),
        (SystemExit(3), "error", None),
    ],
)
def test_an_ending_names_its_kind_and_the_size_asked_for(
    error: BaseException | None, outcome: str, size: int | None
) -> None:
    assert (outcome_of(error), requested_bytes(error)) == (outcome, size)


def test_a_measurement_is_plain_json(tmp_path: Path) -> None:
    keep(Spool(tmp_path), "1")
    (path,) = (tmp_path / "waiting").iterdir()
    assert json.loads(path.read_bytes())["path"] == "/v1/plans/p/measurements"
