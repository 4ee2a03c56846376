"""The loop on one machine: two processes measure it, a job is planned for that, runs, and is learned from."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.service.live import ROOT, served

pytestmark = [
    pytest.mark.torch,
    pytest.mark.launch,
    pytest.mark.xdist_group("deepspeed"),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]
NAME = "this-node"
MODEL = ROOT / "examples/tiny-llama.json"


@dataclass(frozen=True)
class Site:
    """A service, a folder of a node that was probed for it, and what the probe said."""

    url: str
    folder: Path
    found: dict[str, Any]

    def command(self, *arguments: str) -> str:
        return command(self.url, self.folder, *arguments)

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Prefer": "wait=60"}
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data, headers), timeout=90) as answer:
            assert answer.status in {200, 201}, answer.read()
            return json.loads(answer.read())


def command(service: str, folder: Path, *arguments: str) -> str:
    own = {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    own |= {"MESHWRIGHT_SERVICE": service, "MESHWRIGHT_SPOOL": str(folder / "spool")}
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env=os.environ | own,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-20000:]
    return done.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("node")
    with served(environment={"MESHWRIGHT_DATABASE_URL": f"sqlite:///{folder}/service.db"}) as server:
        probe = ("executor.cli", "probe", "--processes", "2", "--memory", "1GiB", "--name", NAME, "--json")
        yield Site(server.url, folder, json.loads(command(server.url, folder, *probe)))


def test_a_probe_of_this_machine_is_planned_for(site: Site) -> None:
    figures = site.found["figures"]
    assert figures["processes"] == 2
    assert set(figures["collectives"]) == {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"}
    assert all(rate > 1e8 for by in figures["matmul"].values() for rate in by.values())
    request = (ROOT / "examples/tiny-cpu.yaml").read_text(encoding="utf-8")
    pools = "pools:\n    - {device: cpu, nodes: 1, gpus_per_node: 2}"
    assert pools in request
    request = request.replace(pools, "device: ./probe.yaml")
    request = request.replace("./tiny-llama.json", str(MODEL))
    (site.folder / "request.yaml").write_text(request, encoding="utf-8")
    plan = json.loads(site.command("planner.cli", "plan", "-f", "request.yaml", "--json"))
    assert plan["status"] == "optimal"
    assert plan["prediction"]["memory"]["conservative_bytes"] <= 2**30


def test_what_a_run_measures_is_in_the_next_plan(site: Site) -> None:
    device = site.ask(f"/v1/devices/{NAME}")
    assert (device["origin"], device["usable_memory_bytes"]) == ("project", 2**30)
    request = {
        "model": {"config": json.loads(MODEL.read_text(encoding="utf-8"))},
        "cluster": NAME,
        "training": {"sequence_length": 128, "global_batch_size": 8, "precision": "fp32", "attention": "sdpa"},
        "backend": "ddp",
        "constraints": {"cross_entropy": "eager", "cuda_graph": False, "compile": False, "micro_batch_size": 4},
    }
    plan = site.ask("/v1/plans", request)
    assert plan["request"]["cluster"]["pools"][0]["device"]["name"] == NAME
    run = ("executor.cli", "run", plan["envelope"]["id"], "--json", "--timed-steps", "2", "--out", "run")
    script = (str(ROOT / "executor/examples/train_llama.py"), "--model", str(MODEL), "--sequence-length", "128")
    assert json.loads(site.command(*run, "--", *script))["outcome"] == "ok"
    [measured] = site.ask("/v1/measurements")["items"]
    assert {"step_seconds", "peak_allocated_bytes"} <= measured["ratios"].keys()
    learned = site.ask("/v1/calibrations", {"from": "measurements", "reason": "the first run"})
    assert [one["measurement_id"] for one in learned["evidence"]["used"]] == [measured["id"]]
    assert learned["evidence"]["families"][0]["family"] == "cpu"
    again = site.ask("/v1/plans", plan["request"])
    assert again["envelope"]["id"] != plan["envelope"]["id"]
    assert again["provenance"]["calibration"].startswith(learned["version"])
    before, after = (one["prediction"]["time"]["interval_seconds"]["90"] for one in (plan, again))
    assert before != after, "the interval is the site's own"
