"""Two processes measure this machine, and a job is planned for what they found."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.torch,
    pytest.mark.launch,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]


def test_a_probe_of_this_machine_is_planned_for(tmp_path: Path) -> None:
    def command(*arguments: str) -> str:
        environment = os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    found = json.loads(command("executor.cli", "probe", "--processes", "2", "--memory", "1GiB", "--json"))
    assert found["figures"]["processes"] == 2
    assert set(found["figures"]["collectives"]) == {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"}
    assert all(rate > 1e8 for by in found["figures"]["matmul"].values() for rate in by.values())
    request = (ROOT / "examples/tiny-cpu.yaml").read_text(encoding="utf-8")
    pools = "pools:\n    - {device: cpu, nodes: 1, gpus_per_node: 2}"
    assert pools in request
    request = request.replace(pools, "device: ./probe.yaml")
    request = request.replace("./tiny-llama.json", str(ROOT / "examples/tiny-llama.json"))
    (tmp_path / "request.yaml").write_text(request, encoding="utf-8")
    plan = json.loads(command("planner.cli", "plan", "-f", "request.yaml", "--json"))
    assert plan["status"] == "optimal"
    assert plan["prediction"]["memory"]["conservative_bytes"] <= 2**30
