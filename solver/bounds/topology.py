"""The floor of a topology: no feature set of it does better.

Its micro-batch times are priced once with nothing that adds to them (no gathering of shards, no offload, communication
overlapped), and the work after the last micro-batch is left out.
"""

from dataclasses import replace

import numpy as np

from cost_models.arrays import FloatArray, IntArray
from cost_models.specs.choices import COMPRESSIONS
from cost_models.strategy import Strategy
from solver.bounds.first import first_bound
from solver.problem import Problem
from solver.rounding import integer_time
from solver.rows import Prices, layer_counts
from solver.space import BackendSpace

_COMPUTE = ("precision", "attention", "cross_entropy", "fused_kernels", "cuda_graph", "compile", "sequence_parallel")
"""Features that change how a micro-batch is computed; the floor takes the best of each combination on offer."""


def topology_floors(problem: Problem, prices: Prices, space: BackendSpace, even: bool) -> FloatArray:
    """Lower bound on v times the step of every topology; infinite where no feature set is legal. (T,) [ticks]

    `even` may be set where every row of the back end has even layers.
    """
    combos, which = np.unique(np.stack([space.features[key] for key in _COMPUTE], axis=1), axis=0, return_inverse=True)
    floors = np.full(space.size, np.inf)
    counts = layer_counts(problem.job)
    for k in range(len(combos)):
        features = np.nonzero(which.ravel() == k)[0]
        at = np.nonzero(space.legal[:, features].any(axis=1))[0]
        if not len(at):
            continue
        strategy = _relaxed(space, at, int(features[0]))
        time = integer_time(prices.time(problem.job, strategy, problem.calibration))
        pp, v = np.asarray(strategy.pipeline_parallel), np.asarray(strategy.virtual_pipeline_stages)
        fixed = (v > 1) | (pp == 1) | even
        bound = first_bound(time, strategy, counts, fixed, np.zeros(len(at), dtype=bool), tail=False)
        floors[at] = np.minimum(floors[at], bound)
    return floors


def _relaxed(space: BackendSpace, topology: IntArray, feature: int) -> Strategy:
    strategy = space.strategy(topology, np.full(len(topology), feature))
    zero, one = np.zeros(len(topology), dtype=np.int64), np.ones(len(topology), dtype=np.int64)
    return replace(
        strategy,
        zero_stage=zero,
        parameter_offload=zero,
        activation_offload=zero,
        optimizer_offload=zero,
        gradient_compression=np.full(len(topology), COMPRESSIONS.index("none")),
        communication_overlap=one,
        recompute_interval=one,
    )
