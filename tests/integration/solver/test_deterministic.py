"""The same question gives the same bytes: whatever the hash seed, threads, order of questions, load and processor."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.solver.answers import answer
from tests.scale import scaled

ROOT = Path(__file__).parents[3]
ASKED = [
    "plan:0",
    *(f"plain:{seed}" for seed in range(6, 6 + scaled(2, 40))),
    "large:500",
    *(f"limited:{seed}" for seed in range(80_000, 80_000 + scaled(1, 60))),
    *(f"listed:{seed}" for seed in range(110_000, 110_000 + scaled(3, 60))),
]
OLD_PROCESSOR = {"OPENBLAS_CORETYPE": "Prescott", "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL"}
"""A processor without wide vectors and fused multiplication, as far as numpy and its BLAS can be told so."""
ENVIRONMENTS = {
    "hash seed 0, one thread": {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    "hash seed 4711, four threads": {"PYTHONHASHSEED": "4711", "OMP_NUM_THREADS": "4", "OPENBLAS_NUM_THREADS": "4"},
    "an old processor": OLD_PROCESSOR,
}


def started(environment: dict[str, str], asked: list[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.integration.solver.answers", *asked],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def here() -> dict[str, str]:
    """The answers of this process, in this order."""
    return {f"{kind}:{seed}": answer(kind, int(seed)) for kind, _, seed in (word.partition(":") for word in ASKED)}


def test_equal_questions_have_equal_answers_everywhere(here: dict[str, str]) -> None:
    """All processes run at once, beside each other, every other one in reverse: that is the load."""
    processes = {
        name: started(environment, ASKED[:: (-1) ** place])
        for place, (name, environment) in enumerate(ENVIRONMENTS.items())
    }
    told = {name: process.communicate(timeout=1000)[0] for name, process in processes.items()}
    for name, out in told.items():
        assert processes[name].returncode == 0, name
        words = (line.split(" ", 2) for line in out.splitlines())
        lines = {f"{kind}:{seed}": said for kind, seed, said in words}
        assert lines.keys() == here.keys()
        for asked, said in lines.items():
            assert said == here[asked], (name, asked)


def test_an_answer_that_a_limit_cut_short_has_a_bound_and_a_gap(here: dict[str, str]) -> None:
    found = json.loads(here["large:500"])
    assert found["status"] == "feasible"
    assert found["objectives"][0]["bound"] < found["objectives"][0]["value"]
    assert "the budget ran out" in found["notes"][0]
