"""Twins: rows that differ in sequence parallelism alone. Compared by their prices, since neither always wins.

Sequence parallelism divides element-wise work and activations among the tensor-parallel ranks (arXiv:2205.05198,
section 4.2.2), but gathers a block's input again in the backward, which takes seconds and a buffer.
"""

import numpy as np

from cost_models.arrays import FloatArray, IntArray
from cost_models.table import MemoryTable
from solver.placed import Memories
from solver.problem import Problem
from solver.rounding import IntegerTime, memory_down, memory_up
from solver.rows import Rows
from solver.space import BackendSpace, BoolArray


def twin_features(space: BackendSpace) -> IntArray:
    """Of each feature set without sequence parallelism the one that adds it; -1 where there is none."""
    split = space.features["sequence_parallel"] > 0
    others = np.stack([column for key, column in space.features.items() if key != "sequence_parallel"], axis=1)
    _, alike = np.unique(others, axis=0, return_inverse=True)
    twin = np.full(len(split), -1)
    twin[alike.ravel()[split]] = np.nonzero(split)[0]
    result: IntArray = np.where(split, -1, twin[alike.ravel()])
    return result


def outdone(problem: Problem, rows: Rows, memory: Memories, features: list[IntArray]) -> BoolArray:
    """Rows whose twin is among the rows and takes less time and no more memory, whatever the layout. (n,)

    `features` are the twins of every space's feature sets. The rows come in the order of the spaces.
    """
    result = np.zeros(len(rows), dtype=bool)
    plain, split = _pairs(rows, features)
    if not len(plain):
        return result
    faster = _faster(rows, plain, split, problem.job.model.num_hidden_layers)
    plain, split = plain[faster], split[faster]
    if not len(plain):
        return result
    no_larger = [_no_larger(table, plain, split) for table in memory.values()]
    result[plain[np.logical_and.reduce(no_larger)]] = True
    return result


def _pairs(rows: Rows, features: list[IntArray]) -> tuple[IntArray, IntArray]:
    """Places of rows without sequence parallelism and of their twins; back ends must lay out both alike."""
    width = max(map(len, features))
    twin = np.stack([np.pad(twins, (0, width - len(twins)), constant_values=-1) for twins in features])
    to = twin[rows.space, rows.feature]
    topologies = int(rows.topology.max(initial=0)) + 1
    start = (rows.space * topologies + rows.topology) * width
    keys = start + rows.feature
    plain = np.nonzero(to >= 0)[0]
    wanted = (start + to)[plain]
    split = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
    same = keys[split] == wanted
    for ability in rows.abilities.values():
        same &= ability[plain] == ability[split]
    return plain[same], split[same]


def _faster(rows: Rows, plain: IntArray, split: IntArray, layers: int) -> BoolArray:
    r"""Pairs of which the second takes less time, whatever the layout: strictly, so that ties keep their winner.

    .. math:: (v m - 1 + L)\,\delta > v\,(\epsilon_s + L\,(\epsilon_l + \epsilon_o) + \epsilon_c)

    A micro-batch takes a stage at least :math:`\delta` less per layer, and a stage has a layer: the slowest stage, of
    which :math:`v m - 1` count, gains :math:`\delta` and the sum of the stages :math:`L \delta`. The work after the
    last micro-batch loses at most :math:`\epsilon` per stage, layer, offloaded layer and step, in any pool.
    """
    v = np.asarray(rows.strategy.virtual_pipeline_stages)[plain]
    steps = v * np.asarray(rows.strategy.gradient_accumulation_steps)[plain]

    def lost(name: str) -> FloatArray:
        """Most ticks that the second loses in a coefficient, in any pool. (pairs,)"""
        most: FloatArray = np.maximum.reduce([_most_lost(time, name, plain, split) for time in rows.time.values()])
        return most

    gain, tail = -lost("layer"), np.maximum(lost("stage_tail"), 0) + np.maximum(lost("fixed"), 0)
    tail = tail + layers * (np.maximum(lost("layer_tail"), 0) + np.maximum(lost("layer_offload"), 0))
    result: BoolArray = (gain >= 0) & (lost("stage") <= 0) & ((steps - 1 + layers) * gain > v * tail)
    return result


def _most_lost(time: IntegerTime, name: str, plain: IntArray, split: IntArray) -> FloatArray:
    values: FloatArray = getattr(time, name)
    result: FloatArray = (values[split] - values[plain]).reshape(len(plain), -1).max(axis=1)
    return result


def _no_larger(memory: MemoryTable, plain: IntArray, split: IntArray) -> BoolArray:
    """Pairs of which the second fits wherever the first does: no coefficient is larger and no capacity smaller.

    A larger working set is made up for at instants that hold the activations of a whole micro-batch, if one layer of
    its mode, of which the stage has at least one, saves as much of them.
    """
    costs = (
        "constant",
        "layer",
        "stage_activation",
        "activation",
        "host_layer",
        "host_constant",
        "host_loading",
        "margin",
    )
    room = ("offload_saving", "capacity", "host_capacity")
    one, other = memory.take(plain), memory.take(split)
    result = np.ones(len(plain), dtype=bool)
    for sign, names in ((1, costs), (-1, room)):
        for name in names:
            more = sign * (getattr(other, name) - getattr(one, name))
            result &= (more <= 0).reshape(len(plain), -1).all(axis=1)
    saved = memory_down((one.activation - other.activation).min(axis=1))
    held = (memory.holds_activations > 0) & (memory.released == 0)
    larger = memory_up(other.working - one.working)
    allowed = np.where(held[:, None], np.maximum(saved, 0)[:, None, None, :], 0)
    return np.asarray(result & (larger <= allowed).all(axis=(1, 2, 3)))
