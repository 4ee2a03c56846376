"""How fast the solver proves the instances: `python -m benchmarks.solve [--instances I4,I7] [--modes any] [--runs N]`.

Prints, per instance and mode: status, seconds to the proof (median and 99th percentile of N runs; the first run apart,
as it fills caches), processor seconds (the figure to trust on a busy machine), seconds to the first and to the best
solution, candidates, peak memory of the process so far, and the ratio of processor time to numpy pricing every legal
row once and taking the best uniform one, which proves nothing about layouts.
"""

import argparse
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.instances import MODES, problem
from solver.bounds.first import least_memory
from solver.problem import Problem
from solver.rows import layer_counts, priced_rows, prices
from solver.search import solve
from solver.space import every_topology, rows_of, spaces

INSTANCES = ("I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9")
CHUNK = 4000


@dataclass(frozen=True)
class Run:
    """One solve: seconds to the proof, of the processor, to the first and last improvement; what came of it."""

    seconds: float
    processor: float
    first: float
    last: float
    status: str
    counts: str


def timed(asked: Problem) -> Run:
    """One solve, timed."""
    started, processor = time.perf_counter(), time.process_time()
    found: list[float] = []
    answer = solve(asked, lambda _, __: found.append(time.perf_counter() - started))
    seconds, processor = time.perf_counter() - started, time.process_time() - processor
    c = answer.candidates
    value = f"{answer.value:.7g}" if answer.configuration is not None else "-"
    counts = f"{c.raw:>10} {c.legal:>7} {c.priced:>6} {c.bounded:>6} {c.solved:>4} {value:>10}"
    first, last = (found[0], found[-1]) if found else (seconds, seconds)
    return Run(seconds, processor, first, last, answer.status, counts)


def whole_space(asked: Problem) -> float:
    """Processor seconds for numpy to enumerate and price every legal row, and to pick the least bound that fits."""
    started, best = time.process_time(), np.inf
    price, counts = prices(None), layer_counts(asked.job)
    at = spaces(asked)
    every = rows_of(at, *every_topology(at))
    for start in range(0, len(every[0]), CHUNK):
        rows = priced_rows(asked, price, at, *(column[start : start + CHUNK] for column in every))
        if not len(rows):
            continue
        memory = price.memory(asked.job, rows.strategy, asked.calibration, asked.oom_risk)
        least = least_memory(memory, rows.strategy, counts, rows.fixed, rows.offloads)
        value = np.where(least <= memory.capacity, rows.lower / rows.strategy.virtual_pipeline_stages, np.inf)
        best = min(best, float(value.min()))
    return time.process_time() - started


def report(name: str, mode: str, runs: int, numpy_too: bool) -> bool:
    """One line; False when an answer is not proven."""
    asked = problem(name, mode)
    cold = timed(asked).seconds
    results = [timed(asked) for _ in range(runs)]
    seconds = np.array([run.seconds for run in results])
    processor, first, last = (
        float(np.median([getattr(r, name) for r in results])) for name in ("processor", "first", "last")
    )
    alone = len(asked.job.cluster.pools) == 1  # across pools there is no one table of rows
    ratio = f"{processor / whole_space(asked):6.2f}" if numpy_too and alone else "     -"
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    times = " ".join(
        f"{x:7.3f}" for x in (cold, np.percentile(seconds, 50), np.percentile(seconds, 99), processor, first, last)
    )
    print(f"{name} {mode:9} {results[0].status:11} {times} {results[0].counts} {memory:6.0f} {ratio}", flush=True)
    return results[0].status != "feasible"


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; 1 when an answer is not proven."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("instances", nargs="*", default=[], help="the same as --instances")
    parser.add_argument("--instances", dest="named", type=_listed, default=(), metavar="I1,I2")
    parser.add_argument("--modes", type=_listed, default=MODES, metavar="any,megatron")
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--no-numpy", action="store_true")
    asked = parser.parse_args(arguments)
    print(
        f"{'instance':12} {'status':11} {'cold s':>7} {'p50 s':>7} {'p99 s':>7} {'cpu s':>7} {'first':>7} {'best':>7} "
        f"{'raw':>10} {'legal':>7} {'priced':>6} {'bound':>6} {'CP':>4} {'value':>10} {'MiB':>6} {'/numpy':>6}"
    )
    names = (*asked.instances, *asked.named) or INSTANCES
    proven = [report(name, mode, asked.runs, not asked.no_numpy) for name in names for mode in asked.modes]
    return 0 if all(proven) else 1


if __name__ == "__main__":
    sys.exit(main())
