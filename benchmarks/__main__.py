"""Plan every job of jobs.yaml in every mode and print how long it took: `python -m benchmarks [JOB ...]`."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import yaml

from planner.planning import plan
from planner.request import PlanRequest

JOBS = Path(__file__).with_name("jobs.yaml")


def requests(names: list[str]) -> Iterator[tuple[str, str, PlanRequest]]:
    """Job, mode and request; all jobs where no names are given."""
    stated = yaml.safe_load(JOBS.read_text(encoding="utf-8"))
    for job, body in stated["jobs"].items():
        for mode, restriction in stated["modes"].items():
            if not names or job in names:
                yield job, mode, PlanRequest.read({**body, **restriction})


def main() -> int:
    """Plan and time; exits 1 when a plan is not proven optimal."""
    unproven = 0
    print(f"{'job':28} {'mode':10} {'status':11} {'seconds':>8} {'candidates':>11} {'value':>12} {'gap':>8}")
    for job, mode, request in requests(sys.argv[1:]):
        started = time.perf_counter()
        answer = plan(request)
        seconds = time.perf_counter() - started
        proof = answer.optimality
        proven = proof is not None and proof.proven
        unproven += not proven
        numbers = f"{proof.candidates:11} {proof.value:12.5g} {proof.gap:8.1e}" if proof is not None else ""
        print(f"{job:28} {mode:10} {answer.status:11} {seconds:8.2f} {numbers}", flush=True)
    return 1 if unproven else 0


if __name__ == "__main__":
    sys.exit(main())
