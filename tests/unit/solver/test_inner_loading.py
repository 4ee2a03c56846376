"""CP-SAT is loaded by the first row that needs it, with parameters that the certificate states."""

import os
import subprocess
import sys

from solver.inner import parameters, solver
from tests.contracts.tree import ROOT

CODE = """
import sys
from pathlib import Path
from planner.planning import plan
from planner.request import PlanRequest, load_request
found = plan(PlanRequest.read(load_request(Path("examples/llama-2-7b.yaml"))))
print(found.status, found.optimality.proven, "ortools" in sys.modules)
"""


def test_a_plan_that_bounds_prove_does_not_load_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["optimal", "True", "False"]


def test_the_engine_has_the_parameters_that_are_stated() -> None:
    engine = solver(0.25).parameters
    stated = parameters(0.25)
    assert {name: getattr(engine, name) for name in stated} == stated
    assert {field for field in str(engine).replace(":", "").split() if not field[0].isdigit()} == set(stated)
