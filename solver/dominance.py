"""Reductions of the space that never lose the optimum, each with its argument; tests compare with and without."""

from dataclasses import dataclass

import numpy as np

from cost_models.arrays import IntArray
from solver.problem import Problem
from solver.space import BackendSpace, BoolArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning:
    """Which reductions are on; all of them, unless a test asks what one of them changes."""

    sequence_parallel: bool = True
    topology_floor: bool = True
    necessary_memory: bool = True
    first_bound: bool = True
    dominance: bool = True


def sequence_parallel_rows(problem: Problem, space: BackendSpace, legal: BoolArray) -> BoolArray:
    """Drop rows without sequence parallelism whose twin with it is legal.

    All-gather plus reduce-scatter moves the bytes of the all-reduce it replaces, and activations and element-wise work
    are divided by the tensor-parallel ranks (arXiv:2205.05198, section 4.2.2): every coefficient is at most the twin's.
    """
    flag = space.features["sequence_parallel"]
    if len(set(flag.tolist())) < 2:
        return legal
    others = [key for key in space.features if key != "sequence_parallel"]
    signature = np.stack([space.features[key] for key in others], axis=1)
    index = {tuple(row): i for i, row in enumerate(signature.tolist()) if flag[i]}
    kept = legal.copy()
    for i, row in enumerate(signature.tolist()):
        if not flag[i] and tuple(row) in index:
            kept[:, i] &= ~legal[:, index[tuple(row)]]
    return kept


def dominated(coefficients: IntArray | np.ndarray, group: IntArray, leader: IntArray, rank: IntArray, strict: IntArray) -> BoolArray:
    """Rows that the leader of their group beats in every coefficient.

    Every layout of the worse row is feasible at no higher cost in the better one, because every constraint and
    objective is monotone in each coefficient (savings enter negated). Equal cost loses a tie only to a row of no
    higher rank, or to one that is strictly cheaper in a coefficient that is always paid (`strict`, a column index).
    """
    lead = leader[group]
    better = (coefficients[lead] <= coefficients).all(axis=1)
    wins_ties = (rank[lead] < rank) | (coefficients[lead][:, strict] < coefficients[:, strict]).any(axis=1)
    out: BoolArray = better & wins_ties & (lead != np.arange(len(lead)))
    return out
