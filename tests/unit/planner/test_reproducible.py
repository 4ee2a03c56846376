"""The same question has the same answer in another process, whatever order its sets have."""

import os
import subprocess
import sys

import pytest

from tests.contracts.tree import ROOT

CODE = """
from planner.planning import plan
from planner.request import PlanRequest
from tests.unit.planner.requests import SMALL, changed
print(plan(PlanRequest.read(changed("constraints", CONSTRAINTS, SMALL) | {"backend": "any"})).reproducible_json())
"""


@pytest.mark.parametrize("constraints", [{}, {"recompute": ["full"], "max_step_seconds": 1e-4}])
def test_a_plan_does_not_depend_on_the_seed_of_hashes(constraints: dict[str, object]) -> None:
    answers = set()
    for seed in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", CODE.replace("CONSTRAINTS", repr(constraints))],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        answers.add(done.stdout)
    assert len(answers) == 1
