"""Every back end trains on CPU processes: the loss falls as that of one process with nothing wrapped."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from executor.deepspeed_config import adapted_to_cpu, exported
from executor.launch import cpu_environment
from tests.scale import FULL
from tests.unit.executor.plans import configuration, feasible

ROOT = Path(__file__).parents[3]
pytestmark = [
    pytest.mark.torch,
    pytest.mark.launch,
    pytest.mark.xdist_group("deepspeed"),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
    pytest.mark.timeout(600),
]

BASE: dict[str, Any] = {
    "precision": "fp32",
    "micro_batch_size": 2,
    "gradient_accumulation_steps": 2,
    "data_parallel": 1,
    "zero_stage": 0,
    "stages": [{"layers": 4, "recompute": {"none": 4}}],
}
FSDP: dict[str, Any] = {"backend": {"name": "fsdp"}, "zero_stage": 3}
DDP: dict[str, Any] = {"backend": {"name": "ddp"}}
TWO_STAGES: dict[str, Any] = {"pipeline_parallel": 2, "stages": [{"layers": 2, "recompute": {"none": 2}}] * 2}
RECOMPUTED: dict[str, Any] = {"stages": [{"layers": 4, "recompute": {"full": 3, "none": 1}}]}
SELECTIVE: dict[str, Any] = {"stages": [{"layers": 4, "recompute": {"full": 1, "selective": 2, "none": 1}}]}
LORA: dict[str, Any] = {"lora": {"rank": 8, "train_embeddings": True}}
DEEPSPEED: dict[str, Any] = {"backend": {"name": "deepspeed"}}

ON_TWO: dict[str, dict[str, Any]] = {
    "ddp": {**DDP, "data_parallel": 2},
    "ddp bf16": {**DDP, "data_parallel": 2, "precision": "bf16"},
    "ddp bf16 hook": {**DDP, "data_parallel": 2, "gradient_compression": "bf16"},
    "ddp powersgd": {**DDP, "data_parallel": 2, "gradient_compression": "powersgd"},
    "ddp lora": {**DDP, **LORA, "data_parallel": 2},
    "ddp selective": {**DDP, **SELECTIVE, "data_parallel": 2},
    "fsdp lora": {**FSDP, **LORA, **SELECTIVE, "data_parallel": 2},
    "fsdp zero-3 recompute": {**FSDP, **RECOMPUTED, "data_parallel": 2},
    "fsdp zero-2 bf16": {**FSDP, "data_parallel": 2, "zero_stage": 2, "precision": "bf16"},
    "tensor parallel": {**FSDP, "tensor_parallel": 2},
    "tensor parallel tied": {**FSDP, "tensor_parallel": 2},
    "sequence parallel": {**FSDP, "tensor_parallel": 2, "sequence_parallel": True},
    "1f1b": {**FSDP, **TWO_STAGES, "zero_stage": 2, "gradient_accumulation_steps": 4},
    "gpipe": {**FSDP, **TWO_STAGES, "zero_stage": 2, "micro_batch_size": 8, "gradient_accumulation_steps": 1},
    "interleaved": {**FSDP, **TWO_STAGES, "zero_stage": 2, "gradient_accumulation_steps": 4,
                    "virtual_pipeline_stages": 2},
}  # fmt: skip
ON_FOUR: dict[str, dict[str, Any]] = {
    "fsdp x tp": {**FSDP, "data_parallel": 2, "tensor_parallel": 2},
    "fsdp x sp": {**FSDP, "data_parallel": 2, "tensor_parallel": 2, "sequence_parallel": True, "zero_stage": 2},
    "fsdp x pp": {**FSDP, **TWO_STAGES, "data_parallel": 2, "zero_stage": 2},
    "tp x pp": {**FSDP, **TWO_STAGES, "tensor_parallel": 2, "zero_stage": 2},
}
DEEPSPEED_ON_TWO: dict[str, dict[str, Any]] = {
    "zero-1": {**DEEPSPEED, "data_parallel": 2, "zero_stage": 1},
    "zero-3 recompute": {**DEEPSPEED, **RECOMPUTED, "data_parallel": 2, "zero_stage": 3},
    "zero-2 lora": {**DEEPSPEED, **LORA, **SELECTIVE, "data_parallel": 2, "zero_stage": 2},
    "pipeline module": {**DEEPSPEED, **TWO_STAGES, "gradient_accumulation_steps": 4},
    "autotp": {**DEEPSPEED, "tensor_parallel": 2},
}
DEEPSPEED_ON_FOUR: dict[str, dict[str, Any]] = {
    "zero-1 x pipeline": {**DEEPSPEED, **TWO_STAGES, "data_parallel": 2, "zero_stage": 1},
    "zero-1 x autotp": {**DEEPSPEED, "data_parallel": 2, "tensor_parallel": 2, "zero_stage": 1},
}
TOLERANCE = {"ddp bf16": 0.01, "fsdp zero-2 bf16": 0.01, "ddp bf16 hook": 0.01, "ddp powersgd": 0.2}
"""Of the loss; fp32 sums in another order differ far less."""


def train(directory: Path, processes: int, cases: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """One launch for all `cases`."""
    asked = {}
    for name, changes in cases.items():
        chosen = configuration(**{**BASE, **changes})
        config = None
        if chosen.backend.name == "deepspeed":
            config, _ = adapted_to_cpu(exported(feasible(configuration=chosen)))
        asked[name] = {
            "configuration": chosen.model_dump(mode="json"), "tied": name.endswith("tied"), "config": config
        }  # fmt: skip
    (directory / "cases.json").write_text(json.dumps(asked), encoding="utf-8")
    worker = Path(__file__).with_name("layouts.py")
    command = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", str(worker)]
    done = subprocess.run(
        [sys.executable, *command, "cases.json", "found.json"],
        cwd=directory,
        env={**os.environ, **cpu_environment(processes), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    found: dict[str, Any] = json.loads((directory / "found.json").read_text(encoding="utf-8"))
    return found


def wrong(found: dict[str, Any]) -> dict[str, Any]:
    """The cases whose loss does not fall, or leaves the reference."""
    return {
        name: case
        for name, case in found.items()
        if not case["losses"][-1] < case["losses"][0] - 0.3
        or case["losses"] != pytest.approx(case["reference"], rel=TOLERANCE.get(name, 1e-5))
    }


QUICK = ("ddp", "fsdp zero-3 recompute", "tensor parallel", "1f1b")
LAUNCHES: dict[str, tuple[int, dict[str, dict[str, Any]]]] = (
    {
        "torch on two": (2, ON_TWO),
        "torch on four": (4, ON_FOUR),
        "deepspeed on two": (2, DEEPSPEED_ON_TWO),
        "deepspeed on four": (4, DEEPSPEED_ON_FOUR),
    }
    if FULL
    else {"a sample": (2, {name: ON_TWO[name] for name in QUICK})}
)


@pytest.mark.parametrize("launch", LAUNCHES)
def test_losses_are_those_of_one_process(tmp_path: Path, launch: str) -> None:
    processes, cases = LAUNCHES[launch]
    found = train(tmp_path, processes, cases)
    assert found.keys() == cases.keys()
    assert wrong(found) == {}
