"""How large certificates are and how long they take: `python -m benchmarks.certificate [INSTANCE ...]`.

Prints, per instance and mode: legal rows, rows that only a look at their layouts settles, bytes of the proof as JSON,
processor seconds to make it, and those of CP-SAT to solve its models again. Verifying takes both.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.instances import MODES, problem
from planner.certifying import certified
from solver.audit.models import solved
from solver.search import solve

INSTANCES = ("I1", "I2", "I3", "I4", "I5", "I6", "I7", "I9")


def report(name: str, mode: str) -> bool:
    """One line; False when the proof contradicts the answer."""
    asked = replace(problem(name, mode), alternatives=0)
    answer = solve(asked)
    asked = replace(asked, domains=asked.domains.with_values(gpus=answer.gpus_considered))
    started = time.process_time()
    proof, contradictions = certified(asked, answer.configuration, None)
    made = time.process_time()
    for model in proof.models:
        solved(model.text)
    rows = sum(part.rows for part in proof.space.row_sets)
    regions = [region for question in proof.pruned_by for region in question.regions]
    looked = sum(region.rows for region in regions if region.argument in {"layouts", "model"})
    size, again = len(proof.model_dump_json()), time.process_time() - made
    print(f"{name} {mode:9} {rows:>9} {looked:>6} {size:>9} {made - started:8.2f} {again:8.2f}", flush=True)
    return not contradictions


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; 1 when a proof contradicts its answer."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("instances", nargs="*", default=INSTANCES)
    asked = parser.parse_args(arguments)
    print(f"{'instance':12} {'rows':>9} {'looked':>6} {'bytes':>9} {'proof s':>8} {'models s':>8}")
    right = [report(name, mode) for name in asked.instances for mode in MODES]
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
