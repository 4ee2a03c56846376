"""Compressed gradients train as well as uncompressed ones, in the bytes that the plan foretells."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cost_models import catalog
from cost_models.specs.configuration import Configuration
from cost_models.time.data_parallel import sent_gradient_bytes
from executor.launch import cpu_environment
from planner.request import PlanRequest
from planner.resolve import resolve
from tests.integration.executor.layouts import LENGTH, SIZES
from tests.scale import FULL
from tests.unit.executor.plans import configuration

ROOT = Path(__file__).parents[3]
pytestmark = [
    pytest.mark.torch,
    pytest.mark.launch,
    pytest.mark.xdist_group("deepspeed"),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
    pytest.mark.timeout(600),
]
STEPS, FEWER = 60, 20
COMPRESSIONS = ("fp16", "bf16", "int8", "powersgd", "top-k") if FULL else ("int8", "top-k")
CAST = ("fp16", "bf16", "int8")
WIRE = {"powersgd": 0.15}
"""How far the bytes sent may be from the plan's. PowerSGD's are predicted for square matrices."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("compression")
    case = {"configuration": plain().model_dump(mode="json"), "steps": STEPS, "compressions": ["none", *COMPRESSIONS]}
    (folder / "case.json").write_text(json.dumps(case), encoding="utf-8")
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [sys.executable, *command, str(Path(__file__).with_name("compressions.py")), "case.json", "found.json"],
        cwd=folder,
        env={**os.environ, **cpu_environment(2), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads((folder / "found.json").read_text(encoding="utf-8"))
    return found


def plain() -> Configuration:
    stages = [{"layers": SIZES["num_hidden_layers"], "recompute": {"none": SIZES["num_hidden_layers"]}}]
    batch = {"micro_batch_size": 4, "data_parallel": 2, "zero_stage": 0}
    return configuration(backend={"name": "ddp"}, precision="fp32", stages=stages, **batch)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_it_converges_as_uncompressed_gradients_do(trained: dict[str, Any], compression: str) -> None:
    losses, reference = trained[compression]["losses"], trained["none"]["losses"]
    if compression in CAST:
        assert losses == pytest.approx(reference, rel=0.02)
    else:
        assert losses[-1] < reference[FEWER]  # a hundredth of the entries takes more steps, not a worse end


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_all_processes_keep_the_same_weights(trained: dict[str, Any], compression: str) -> None:
    assert trained[compression]["alike"]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_the_bytes_sent_are_those_of_the_plan(trained: dict[str, Any], compression: str) -> None:
    request = {
        "model": {"architecture": {**SIZES, "tie_word_embeddings": False}},
        "cluster": {"pools": [{"device": "cpu", "gpus_per_node": 2}]},
        "training": {"sequence_length": LENGTH, "global_batch_size": 8, "precision": "fp32"},
        "backend": "ddp",
    }
    job = resolve(PlanRequest.read(request)).job
    asked = plain().model_copy(update={"gradient_compression": compression})
    predicted = sent_gradient_bytes(job, asked, catalog.calibration())
    assert trained[compression]["sent"] == pytest.approx(predicted, rel=WIRE.get(compression, 0.01))
