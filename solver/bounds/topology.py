"""The floor of a topology: no feature set of it does better.

Its micro-batch times are priced once with nothing that adds to them (no gathering of shards, no offload, communication
overlapped), and the work after the last micro-batch is left out.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from cost_models.arrays import FloatArray, IntArray
from cost_models.specs.choices import COMPRESSIONS
from cost_models.strategy import Strategy
from solver.legality import legality
from solver.placed import lower_bounds, priced_times
from solver.problem import Problem
from solver.rows import Prices, layer_counts
from solver.space import BackendSpace, strategies

_COMPUTE = (
    "precision", "attention", "cross_entropy", "fused_kernels", "cuda_graph", "compile", "sequence_parallel",
    "expert_overlap",
)  # fmt: skip
"""Features that change how a micro-batch is computed; the floor takes the best of each combination on offer."""


def topology_floors(
    problem: Problem,
    prices: Prices,
    spaces: Sequence[BackendSpace],
    weights: Callable[[Strategy], FloatArray],
    most: Callable[[Strategy], FloatArray] | None = None,
) -> FloatArray:
    """Lower bound on the objective of every topology; infinite where no feature set is legal or keeps the limits. (T,)

    `weights`: what a tick of v times the step is worth in a row, whatever its features. `most`: how many ticks it may
    be, whatever its features.
    """
    where, owner, topology, feature = _candidates(spaces)
    strategy = lightest(strategies(spaces, owner, topology, feature))
    times = priced_times(problem, prices.micro_batch, strategy)
    pp, v = np.asarray(strategy.pipeline_parallel), np.asarray(strategy.virtual_pipeline_stages)
    even = np.array([all(layout.layers == "even" for layout in legality(s.backend).layouts) for s in spaces])
    fixed = ((v > 1) & (problem.job.model.num_hidden_layers % pp == 0)) | (pp == 1) | even[owner]
    none = np.zeros(len(owner), dtype=bool)
    bound = lower_bounds(problem, times, strategy, layer_counts(problem.job), fixed, none, tail=False)
    if most is not None:
        bound = np.where(bound <= most(strategy), bound, np.inf)
    floors = np.full(sum(space.size for space in spaces), np.inf)
    np.minimum.at(floors, where, bound * weights(strategy))
    return floors


def _candidates(spaces: Sequence[BackendSpace]) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """One legal row of each topology for each way to compute a micro-batch: its place among all topologies, and row."""
    places, owners, topologies, features, start = [], [], [], [], 0
    for index, space in enumerate(spaces):
        columns = np.stack([space.features[key] for key in _COMPUTE], axis=1)
        combinations, which = np.unique(columns, axis=0, return_inverse=True)
        for k in range(len(combinations)):
            of_k = np.nonzero(which.ravel() == k)[0]
            at = np.nonzero(space.legal[:, of_k].any(axis=1))[0]
            places.append(start + at)
            owners.append(np.full(len(at), index))
            topologies.append(at)
            features.append(np.full(len(at), of_k[0]))
        start += space.size
    place, owner = np.concatenate(places), np.concatenate(owners)
    return place, owner, np.concatenate(topologies), np.concatenate(features)


def lightest(strategy: Strategy) -> Strategy:
    """The rows with nothing that adds to the work of a micro-batch."""
    zero, one = np.zeros(len(strategy), dtype=np.int64), np.ones(len(strategy), dtype=np.int64)
    return replace(
        strategy,
        zero_stage=zero,
        parameter_offload=zero,
        activation_offload=zero,
        optimizer_offload=zero,
        gradient_compression=np.full(len(strategy), COMPRESSIONS.index("none")),
        communication_overlap=one,
        recompute_interval=one,
    )
