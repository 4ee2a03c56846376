"""Answers as bytes, for a fresh process: `python -m tests.integration.solver.answers KIND:SEED ...` prints a line each.

Kinds: `plain`; `limited`, with no CP-SAT call; `large`, a large space with so many priced rows; `listed`, any list of
objectives; `plan`, a whole plan with its certificate.
"""

import hashlib
import json
import sys
from dataclasses import asdict, replace
from typing import Any

from benchmarks.instances import problem as benchmark
from cost_models import catalog
from planner.certifying import issue
from planner.planning import plan
from planner.request import PlanRequest
from solver.errors import LimitReached
from solver.problem import Budget, Problem
from solver.search import solve
from solver.solution import Solution
from tests.oracle.instances import instance
from tests.oracle.varied import varied

REQUEST: dict[str, Any] = {
    "model": {"preset": "llama-3.2-1b"},
    "cluster": {"pools": [{"device": "rtx-4090", "nodes": 2, "gpus_per_node": 2}]},
    "training": {"sequence_length": 2048, "global_batch_size": 16},
    "objective": ["throughput", "memory"],
}


def text(solution: Solution) -> str:
    """A solution, whole, as text."""

    def plain(value: Any) -> Any:
        return value.model_dump(mode="json") if hasattr(value, "model_dump") else str(value)

    return json.dumps(asdict(solution), default=plain, sort_keys=True)


def problem(kind: str, seed: int) -> Problem:
    """What is asked."""
    if kind == "listed":
        return varied(seed).problem()
    if kind == "large":
        return replace(benchmark("I4", "megatron"), alternatives=0, budget=Budget(max_priced_rows=seed))
    asked = instance(seed).problem(objectives=("memory",))
    return replace(asked, budget=Budget(max_solves=0)) if kind == "limited" else asked


def answer(kind: str, seed: int) -> str:
    """Its text: of a plan and its certificate the hashes."""
    if kind == "plan":
        found = plan(PlanRequest.read(REQUEST))
        parts = (found.model_dump_json(exclude={"envelope"}), issue(found, catalog.calibration()).to_json())
        return " ".join(hashlib.sha256(part.encode()).hexdigest() for part in parts)
    try:
        return text(solve(problem(kind, seed)))
    except LimitReached as error:
        return str(error)


if __name__ == "__main__":
    asked = [(kind, int(seed)) for kind, _, seed in (word.partition(":") for word in sys.argv[1:])]
    for kind, seed in asked:
        print(kind, seed, answer(kind, seed))
