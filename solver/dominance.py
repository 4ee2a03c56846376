"""Reductions of the space that never lose the optimum, each with its argument; tests compare with and without."""

from dataclasses import dataclass

import numpy as np

from solver.problem import Problem
from solver.space import BackendSpace, BoolArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning:
    """Which reductions are on; all of them, unless a test asks what one of them changes."""

    sequence_parallel: bool = True
    topology_floor: bool = True
    necessary_memory: bool = True
    first_bound: bool = True
    holding: bool = True


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
