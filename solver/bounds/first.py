"""The first bounds of a row: a few sums over its coefficients, cheap enough for every row. Memory is ignored by the
time bound, time by the memory test.
"""

from functools import reduce

import numpy as np

from cost_models.arrays import FloatArray, IntArray
from cost_models.schedule import BOTH, FIRST, LAST, MIDDLE, in_flight
from cost_models.strategy import Strategy
from cost_models.table import MemoryTable
from solver.rounding import IntegerTime, StageTimes
from solver.space import BoolArray


def class_weights(stages: IntArray) -> FloatArray:
    """How many stages of each class a pipeline has. (n, C)"""
    one = (stages == 1).astype(float)
    out = np.zeros((len(stages), 4))
    out[:, BOTH] = one
    out[:, FIRST] = out[:, LAST] = 1 - one
    out[:, MIDDLE] = np.maximum(stages - 2, 0)
    return out


def _worst(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Largest over the classes that occur. (n,)"""
    result: FloatArray = np.where(weights > 0, values, -np.inf).max(axis=1)
    return result


def first_bound(
    time: IntegerTime,
    strategy: Strategy,
    layers: FloatArray,
    fixed: BoolArray,
    offloads: BoolArray,
    *,
    tail: bool = True,
) -> FloatArray:
    """Lower bound on v times the step with no layer recomputed but for free. (n,) [ticks]

    (v m - 1) max(mean, class) + sum + v (tail + fixed): the sum of all layers and stage constants is unavoidable, the
    slowest stage is at least the mean and at least any class with the layers it must hold. Without `tail` the last
    term is left out.
    """
    pp = np.asarray(strategy.pipeline_parallel)
    v, m = np.asarray(strategy.virtual_pipeline_stages), np.asarray(strategy.gradient_accumulation_steps)
    weights = class_weights(pp)
    cheapest = time.layer.min(axis=2)
    total = (weights * time.stage).sum(axis=1) + cheapest @ layers
    held = np.where(fixed, layers.sum() // pp, 1)
    slowest = np.maximum(np.ceil(total / pp), _worst(time.stage, weights) + held * cheapest.min(axis=1))
    bound: FloatArray = (v * m - 1) * slowest + np.maximum(total, slowest)
    if not tail:
        return bound
    saving = np.where(offloads, np.minimum(time.layer_offload.min(axis=1), 0), 0)
    each = time.layer_tail.min(axis=1) + saving
    mean_tail = ((weights * time.stage_tail).sum(axis=1) + time.layer_tail @ layers + saving * layers.sum()) / pp
    worst_tail = np.where(each >= 0, _worst(time.stage_tail, weights) + held * each, -np.inf)
    whole: FloatArray = bound + v * (np.maximum(np.ceil(mean_tail), worst_tail) + time.fixed)
    return whole


def placed_bound(
    time: StageTimes,
    strategy: Strategy,
    layers: FloatArray,
    fixed: BoolArray,
    offloads: BoolArray,
    *,
    tail: bool = True,
) -> FloatArray:
    """The same bound for stages in several pools, all rows with as many stages. (n,) [ticks]

    The slowest stage is at least any weighted mean of the stages. With weights inverse to the time of a stage's layers
    a layer counts the same wherever it goes: more than the plain mean, where pools differ in speed.
    """
    stages = time.stage.shape[1]
    v, m = np.asarray(strategy.virtual_pipeline_stages), np.asarray(strategy.gradient_accumulation_steps)
    cheapest = np.broadcast_to(time.layer.min(axis=3), (len(v), stages, time.layer.shape[2]))
    total = time.stage.sum(axis=1) + cheapest.min(axis=1) @ layers
    weight = 1.0 / np.maximum(cheapest @ layers, 1.0)
    shared = (weight * time.stage).sum(axis=1) + (weight[:, :, None] * cheapest).min(axis=1) @ layers
    held = np.where(fixed, layers.sum() // stages, 1)
    each = time.stage + held[:, None] * cheapest.min(axis=2)
    # What floats lose may not lift a bound.
    mean = np.floor(shared / weight.sum(axis=1) * (1 - 1e-12))
    slowest = np.maximum.reduce([np.ceil(total / stages), mean, each.max(axis=1)])
    total = np.maximum(total, np.where(fixed, each.sum(axis=1), slowest))
    bound: FloatArray = (v * m - 1) * slowest + np.maximum(total, slowest)
    if not tail:
        return bound
    saving = np.where(offloads[:, None], np.minimum(time.layer_offload.min(axis=2), 0), 0)
    after = time.layer_tail.min(axis=2) + saving
    worst = np.where(after >= 0, time.stage_tail + held[:, None] * after, -np.inf).max(axis=1)
    whole: FloatArray = bound + v * (np.where(np.isfinite(worst), worst, 0) + time.fixed)
    return whole


def _leanest(by_mode: FloatArray) -> FloatArray:
    """Least over the modes, the last axis: of so few, faster one by one than as a reduction."""
    least: FloatArray = reduce(np.minimum, np.moveaxis(by_mode, -1, 0))
    return least


def least_flight(memory: MemoryTable, strategy: Strategy, stage: IntArray, layers: int | None = None) -> FloatArray:
    """Micro-batches in flight at `stage` by instant. (n, I)"""
    pp, v = np.asarray(strategy.pipeline_parallel), np.asarray(strategy.virtual_pipeline_stages)
    steps = np.asarray(strategy.gradient_accumulation_steps)
    flight = np.asarray(in_flight(stage, pp, v, steps, layers), dtype=float)
    result: FloatArray = np.maximum(flight[:, None] - memory.released / v[:, None], 0) * memory.holds_activations
    return result


def least_memory(
    memory: MemoryTable, strategy: Strategy, layers: FloatArray, fixed: BoolArray, offloads: BoolArray
) -> FloatArray:
    """Lower bound on the fullest rank's peak, from unrounded bytes: layers in their leanest mode, offloaded if allowed.

    Two arguments: the mean over the stages with the fewest micro-batches in flight, and the first and last stage with
    the layers they must hold. (n,) [bytes]
    """
    pp = np.asarray(strategy.pipeline_parallel)
    lean, work = _leanest(memory.activation), _leanest(memory.working)
    saving = memory.offload_saving * offloads[:, None]
    total = _kept_by_all(memory, strategy, layers)
    best: FloatArray = ((total - (saving @ layers)[:, None]) / pp[:, None]).max(axis=1)
    held = np.where(fixed, layers.sum() // pp, 1)[:, None]
    for stage, index in ((FIRST, np.zeros_like(pp)), (LAST, pp - 1)):
        flight = least_flight(memory, strategy, index, int(layers.sum()))
        at = np.where(pp == 1, BOTH, stage)
        rows = np.arange(len(pp))
        need = memory.constant[rows, at] + work[rows, at] + flight * memory.stage_activation[rows, at][:, None]
        each = memory.layer.min(axis=1) + flight * lean.min(axis=1)[:, None] - saving.max(axis=1)[:, None]
        # More layers than a stage must hold cost more, unless offloading frees more than they weigh.
        count = np.where(each >= 0, held, np.where(fixed[:, None], held, layers.sum()))
        best = np.maximum(best, (need + count * each).max(axis=1))
    return best


def _kept_by_all(memory: MemoryTable, strategy: Strategy, layers: FloatArray) -> FloatArray:
    """Least that one rank of every stage keep together, nothing offloaded, by instant. (n, I) [bytes]"""
    pp = np.asarray(strategy.pipeline_parallel)
    weights = class_weights(pp)
    lean, work = _leanest(memory.activation), _leanest(memory.working)
    total = (weights[:, :, None] * (memory.constant + work)).sum(axis=1) + np.einsum("nji,j->ni", memory.layer, layers)
    held = (weights * memory.stage_activation).sum(axis=1) + lean @ layers
    # Of equal chunks in the last stage: no stage of other chunks holds less a layer.
    result: FloatArray = total + least_flight(memory, strategy, pp - 1) * held[:, None]
    return result


def least_hosted(
    memory: MemoryTable, strategy: Strategy, layers: FloatArray, offloads: BoolArray, everything: BoolArray
) -> FloatArray:
    """Least host memory that optimizer states take of one rank of every stage together: those of all layers where the
    back end offloads `everything`, else of one, and of what the devices of all stages cannot keep. (n,) [bytes]
    """
    excess = (
        _kept_by_all(memory, strategy, layers).max(axis=1) - np.asarray(strategy.pipeline_parallel) * memory.capacity
    )
    price = _host_price(memory)
    beyond = np.where((excess > 0) & np.isfinite(price), np.maximum(excess, 0) * np.nan_to_num(price, posinf=0.0), 0.0)
    least = np.where(everything, memory.host_layer @ layers, np.maximum(beyond, memory.host_layer.min(axis=1)))
    result: FloatArray = np.where(offloads, least, 0.0)
    return result


def _host_price(memory: MemoryTable) -> FloatArray:
    """Least host bytes for which a device byte is freed; infinite where nothing frees any. (n,)"""
    with np.errstate(divide="ignore", invalid="ignore"):
        price = np.where(memory.offload_saving > 0, memory.host_layer / memory.offload_saving, np.inf)
    least: FloatArray = price.min(axis=1)
    return least


def least_beside_host(memory: MemoryTable, strategy: Strategy, gpus_per_node: int, layers: FloatArray) -> FloatArray:
    """Lower bound on the fullest rank's peak when all nodes together free no more than they hold. (n,) [bytes]"""
    pp, ranks = np.asarray(strategy.pipeline_parallel), np.asarray(strategy.world_size)
    room = memory.host_capacity * -(-ranks // gpus_per_node) / (ranks // pp)
    room = np.maximum(room - (class_weights(pp) * memory.host_constant).sum(axis=1), 0) * (1 + 1e-12)
    with np.errstate(divide="ignore", invalid="ignore"):
        freed = np.minimum(np.nan_to_num(room / _host_price(memory), posinf=np.inf), memory.offload_saving @ layers)
    least: FloatArray = (_kept_by_all(memory, strategy, layers).max(axis=1) - freed) / pp
    return least


def least_host(memory: MemoryTable, strategy: Strategy, gpus_per_node: int, hosted: FloatArray) -> FloatArray:
    """Lower bound on the host memory of the fullest node: its ranks with the leanest stage, and its share of what all
    ranks keep, `hosted` of one rank of every stage. (n,) [bytes]
    """
    weights = class_weights(np.asarray(strategy.pipeline_parallel))
    ranks = np.asarray(strategy.world_size)
    leanest = np.where(weights > 0, memory.host_constant, np.inf).min(axis=1) * np.minimum(ranks, gpus_per_node)
    total = (weights * memory.host_constant).sum(axis=1) + hosted
    share = total * (ranks // np.asarray(strategy.pipeline_parallel)) / -(-ranks // gpus_per_node)
    # What floats lose may not lift a bound.
    result: FloatArray = np.maximum(leanest, share * (1 - 1e-12))
    return result
