"""The same question has the same answer in another process: any order of sets, folder, priority, threads or load."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contracts.tree import ROOT

CODE = """
from cost_models import catalog
from planner.certifying import issue
from planner.planning import plan
from planner.request import PlanRequest
from tests.unit.planner.requests import SMALL, changed
found = plan(PlanRequest.read(changed("constraints", CONSTRAINTS, SMALL) | {"backend": "any"}))
print(found.reproducible_json())
print(issue(found, catalog.calibration()).to_json())
"""


@pytest.mark.parametrize("constraints", [{}, {"recompute": ["full"], "max_step_seconds": 1e-4}])
def test_a_plan_and_its_proof_do_not_depend_on_where_and_how_they_are_made(
    constraints: dict[str, object], tmp_path: Path
) -> None:
    surroundings = [("0", ROOT, "0", "1"), ("1", tmp_path, "15", "2")]
    running = [
        subprocess.Popen(
            ["nice", "-n", priority, sys.executable, "-c", CODE.replace("CONSTRAINTS", repr(constraints))],
            cwd=folder,
            env=os.environ
            | {
                "PYTHONHASHSEED": seed,
                "PYTHONPATH": str(ROOT),
                "OMP_NUM_THREADS": threads,
                "OPENBLAS_NUM_THREADS": threads,
                "TZ": f"UTC{seed}",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed, folder, priority, threads in surroundings
    ]
    outcomes = [process.communicate() for process in running]
    assert [process.returncode for process in running] == [0, 0], outcomes[0][1] + outcomes[1][1]
    assert outcomes[0][0] == outcomes[1][0]
