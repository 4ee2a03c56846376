"""Solve the instances in both modes and print how long each took: `python -m benchmarks [INSTANCE ...]`."""

import sys
import time

from benchmarks.instances import MODES, problem
from solver.search import solve

HOMOGENEOUS = ("I1", "I2", "I3", "I4", "I5", "I6")


def main() -> int:
    """Solve and time; exits 1 when an answer is not proven."""
    unproven = 0
    print(
        f"{'instance':9} {'mode':9} {'status':11} {'seconds':>8} {'priced':>9} {'solved':>7} {'value':>12} {'gap':>8}"
    )
    for name in sys.argv[1:] or HOMOGENEOUS:
        for mode in MODES:
            started = time.perf_counter()
            answer = solve(problem(name, mode))
            seconds = time.perf_counter() - started
            unproven += answer.status == "feasible"
            value = f"{answer.value:12.5g} {answer.gap:8.1e}" if answer.configuration is not None else ""
            counts = f"{answer.candidates.priced:9} {answer.candidates.solved:7}"
            print(f"{name:9} {mode:9} {answer.status:11} {seconds:8.2f} {counts} {value}", flush=True)
    return 1 if unproven else 0


if __name__ == "__main__":
    sys.exit(main())
