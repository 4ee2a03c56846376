"""How fast frontiers and ladders are proven: `python -m benchmarks.frontier [INSTANCE] [--points N]`.

Prints processor seconds of a time-memory frontier of N points and of the ladder over whole nodes, in both modes.
"""

import argparse
import sys
import time
from collections.abc import Sequence

from benchmarks.instances import MODES, problem
from solver.frontier import ladder, time_memory


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; 1 when a point is not proven."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("instance", nargs="?", default="I4")
    parser.add_argument("--points", type=int, default=20)
    asked = parser.parse_args(arguments)
    proven = True
    print(f"{'instance':12} {'points':>6} {'cpu s':>7} {'rungs':>6} {'cpu s':>7}")
    for mode in MODES:
        stated = problem(asked.instance, mode)
        started = time.process_time()
        front = time_memory(stated, asked.points)
        swept, started = time.process_time() - started, time.process_time()
        per_node = stated.job.pool.gpus_per_node
        rungs = ladder(stated, range(per_node, stated.job.cluster.gpus + 1, per_node))
        climbed = time.process_time() - started
        proven &= all(objective.proven for point in front.points for objective in point.objectives)
        name = f"{asked.instance} {mode}"
        print(f"{name:12} {len(front.points):6} {swept:7.2f} {len(rungs):6} {climbed:7.2f}", flush=True)
    return 0 if proven else 1


if __name__ == "__main__":
    sys.exit(main())
