"""Runs that end badly go on from their last checkpoint under the next plan, and the loss as if nothing had happened."""

import io
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from executor.launch import LaunchOptions, Measuring, Script
from executor.recovery.supervise import LOG, Attempt, Policy, supervise
from planner.plan import Plan
from planner.planning import plan
from planner.request import PlanRequest
from tests.integration.executor import layouts
from tests.integration.executor.faulty import STEPS
from tests.integration.executor.layouts import LENGTH, SIZES
from tests.scale import FULL

SCRIPT = Path(__file__).with_name("faulty.py")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.launch,
    pytest.mark.xdist_group("deepspeed"),
    pytest.mark.skipif(sys.platform != "linux", reason="limits address space"),
    pytest.mark.timeout(600),
]
CAP = 2**30
FAULTS = {"oom": "less_memory", "killed": "same_plan", "nan": "more_precision", "slow": "same_plan"}
CASES = [("oom", "ddp"), ("oom", "fsdp"), ("killed", "ddp"), ("nan", "ddp"), ("slow", "ddp")]


@cache
def planned(precision: str, backend: str = "ddp") -> Plan:
    request = {
        "model": {"architecture": {**SIZES, "tie_word_embeddings": False}},
        "cluster": {"pools": [{"device": "cpu", "gpus_per_node": 2}]},
        "training": {"sequence_length": LENGTH, "global_batch_size": 16, "precision": precision, "attention": "sdpa"},
        "backend": backend,
        "constraints": {"recompute": ["none", "full"], "recompute_interval": 1, "cross_entropy": "eager",
                        "offload": "forbid", "pipeline_parallel": 1, "tensor_parallel": 1, "context_parallel": 1,
                        "compile": False, "cuda_graph": False},
    }  # fmt: skip
    return plan(PlanRequest.read(request))


def reference(precision: str) -> list[float]:
    """One process, the whole batch at once."""
    configuration = planned(precision).configuration
    assert configuration is not None
    return layouts.reference(configuration, tied=False, steps=STEPS)


def recovered(folder: Path, fault: str, chosen: Plan, monkeypatch: pytest.MonkeyPatch) -> tuple[Attempt, ...]:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("FAULT", fault)
    options = LaunchOptions(
        directory=folder / "out",
        measuring=Measuring(warmup_steps=1, timed_steps=2),
        passed=("FAULT",),
        memory_cap=CAP,
    )
    policy = Policy(attempts=2, checkpoint_every=3, slowdown=4.0)
    output = io.StringIO()
    found = supervise(chosen, Script(path=SCRIPT), options, policy, output)
    assert found[-1].report.outcome == "ok", output.getvalue()[-4000:]
    return found


def losses(folder: Path) -> dict[int, float]:
    """By step, the last that was told; none is missing."""
    lines = (folder / "losses-0.jsonl").read_text(encoding="utf-8").splitlines()
    told: dict[int, float] = dict(json.loads(line) for line in lines)
    return told


@pytest.mark.parametrize(("fault", "backend"), CASES if FULL else CASES[:1])
def test_a_run_goes_on_as_if_nothing_had_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, backend: str
) -> None:
    precision = "bf16" if fault == "nan" else "fp32"
    attempts = recovered(tmp_path, fault, planned(precision, backend), monkeypatch)
    assert [attempt.step.action for attempt in attempts] == [FAULTS[fault], "done"]
    log: list[dict[str, Any]] = [json.loads(line) for line in (tmp_path / "out" / LOG).read_text().splitlines()]
    assert log[0]["continues_from_step"] >= 6
    assert all(line["reason"] for line in log)
    told = losses(tmp_path)
    expected = reference(precision)
    assert [told[step] for step in range(STEPS)] == pytest.approx(expected, rel=0.02 if fault == "nan" else 1e-4)
    before, after = attempts[0].plan, attempts[1].plan
    assert before.prediction is not None
    assert after.prediction is not None
    if fault == "oom":
        assert attempts[0].report.requested_bytes == 4 * 2**29
        assert after.prediction.memory.allocated.median_bytes < before.prediction.memory.allocated.median_bytes
    if fault == "nan":
        assert after.configuration is not None
        assert after.configuration.precision == "fp32"
