"""From the times of stages to the step: the bound over all divisions of the layers, and what one division reaches."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cost_models.arrays import FloatArray, IntArray
from solver.bounds import offload, partition
from solver.bounds.batch import Batch, windows
from solver.bounds.free import by_length, counts_of, greedy_layers, slowest_stage, sum_bound
from solver.bounds.offload import Level
from solver.bounds.quick import least_total
from solver.bounds.ways import ANYHOW


@dataclass(frozen=True, slots=True)
class Stages:
    """What stages and windows take under one way and level. (n, S, Q)"""

    times: FloatArray
    """Least micro-batch time."""
    reached: FloatArray
    """Of a known pattern."""
    low_tail: FloatArray
    tail: FloatArray
    """Of layouts that offload as many layers as the level allows."""

    def take(self, index: Any) -> "Stages":
        """Some of the rows."""
        return Stages(self.times[index], self.reached[index], self.low_tail[index], self.tail[index])


Pair = tuple[FloatArray, FloatArray]
"""Lower bound and reached value. (n,), (n,)"""


def objective(batch: Batch, slowest: FloatArray, total: FloatArray, tail: FloatArray) -> FloatArray:
    """v times the step: (v m - 1) slowest + total + v (tail + fixed); infinite where a part is. (n,)"""
    possible = np.isfinite(slowest) & np.isfinite(total) & (tail < np.inf)
    weighed = batch.slope * np.where(possible, slowest, 0) + total
    return np.where(possible, weighed + batch.shape.virtual * (tail + batch.time.fixed), np.inf)


def fixed(batch: Batch, stages: Stages, level: Level) -> Pair:
    """Given layers: the stages are independent but for the maxima."""
    least = np.maximum(stages.low_tail[:, :, 0].max(axis=1), offload.least_offload_tail(batch, level))
    lower = objective(batch, stages.times.max(axis=(1, 2)), stages.times.sum(axis=(1, 2)), least)
    held = np.broadcast_to(windows(batch.shape).length[:, 0], (len(batch), batch.shape.stages))
    host = offload.host_fits(batch, offload.offloaded(held, level))
    tail, reached = stages.tail[:, :, 0].max(axis=1), stages.reached
    upper = objective(batch, reached.max(axis=(1, 2)), reached.sum(axis=(1, 2)), tail)
    return lower, np.where(host, upper, np.inf)


def free(batch: Batch, stages: Stages, level: Level, most: FloatArray) -> Pair:
    """Free layers of one kind: a division is looked for in rows whose bound is at most `most`."""
    tau = slowest_stage(by_length(batch, stages.times), batch.shape.num_layers)
    total = sum_bound(batch, stages.times)
    tau = np.maximum(tau, np.ceil(total / batch.shape.stages))
    lower = objective(batch, tau, np.maximum(total, tau), _least_tail(batch, stages, level))
    upper = np.full(len(batch), np.inf)
    at = np.nonzero(lower <= most)[0]
    if len(at):
        upper[at] = _value(batch.take(at), stages.take(at), level.take(at))
    return lower, upper


def split(batch: Batch, stages: Stages, level: Level, most: FloatArray) -> Pair:
    """Free layers of several kinds: rows whose first bound is at most `most` are divided exactly."""
    tau = slowest_stage(by_length(batch, stages.times), batch.shape.num_layers)
    total = least_total(batch, ANYHOW)
    least = _least_tail(batch, stages, level)
    lower, upper = objective(batch, tau, np.maximum(total, tau), least), np.full(len(batch), np.inf)
    at = np.nonzero(lower <= most)[0]
    if len(at):
        lower[at] = _divided(batch.take(at), stages.take(at), least[at], most[at])
        at = at[lower[at] <= most[at]]
    if len(at):
        upper[at] = _value(batch.take(at), stages.take(at), level.take(at))
    return lower, upper


def _divided(batch: Batch, stages: Stages, least: FloatArray, most: FloatArray) -> FloatArray:
    """Each part of the objective at its own least over all divisions, one after the other while within `most`. (n,)"""
    tau = partition.least_maximum(batch, stages.times)
    total = least_total(batch, ANYHOW)
    lower = objective(batch, tau, np.maximum(total, tau), least)
    at = np.nonzero(lower <= most)[0]
    if len(at):
        part, cut, slowest = batch.take(at), stages.take(at), tau[at]
        total, _ = partition.least_sum(part, cut.times)
        slowest = np.maximum(slowest, np.ceil(total / batch.shape.stages))
        tail = partition.least_maximum(part, np.where(np.isfinite(cut.times), cut.low_tail, np.inf))
        lower[at] = objective(part, slowest, total, np.maximum(tail, least[at]))
    return lower


def _least_tail(batch: Batch, stages: Stages, level: Level) -> FloatArray:
    """Least work after the last micro-batch: of every stage, of their mean, of whichever stage offloads. (n,)"""
    layers = batch.time.layer_tail.min(axis=1) @ counts_of(batch.shape)
    mean = np.ceil((batch.time.stage_tail.sum(axis=1) + layers) / batch.shape.stages)
    if not level.none:
        mean = np.where(batch.time.layer_offload.min(axis=(1, 2)) >= 0, mean, -np.inf)
    each = np.where(windows(batch.shape).valid[None], stages.low_tail, np.inf).min(axis=2).max(axis=1)
    least: FloatArray = np.maximum.reduce([each, mean, offload.least_offload_tail(batch, level)])
    return least


def held_layers(batch: Batch, reached: FloatArray, tail: FloatArray) -> IntArray:
    """Layers of each stage with the least slowest stage; of several kinds, then the least tail and sum. (n, S)

    0 where no division was found.
    """
    if batch.shape.kinds == 1:
        layers = batch.shape.num_layers
        return greedy_layers(reached, slowest_stage(by_length(batch, reached), layers), layers)
    tau = partition.least_maximum(batch, reached)
    allowed = np.where(reached <= tau[:, None, None], reached, np.inf)
    latest = partition.least_maximum(batch, np.where(np.isfinite(allowed), tail, np.inf))
    total, held = partition.least_sum(batch, np.where(tail <= latest[:, None, None], allowed, np.inf))
    result: IntArray = np.where(np.isfinite(total)[:, None], held, 0)
    return result


def _value(batch: Batch, stages: Stages, level: Level) -> FloatArray:
    """What a division of the layers reaches; infinite where none was found. (n,)"""
    layers = held_layers(batch, stages.reached, stages.tail)
    ok: Any = (layers > 0).all(axis=1)
    value = np.full(len(batch), np.inf)
    if not ok.any():
        return value
    batch, stages, level, layers = batch.take(ok), stages.take(ok), level.take(ok), layers[ok]
    at = partition.chosen_windows(batch, layers)[:, :, None]
    time = np.take_along_axis(stages.reached, at, axis=2)[:, :, 0]
    tails = np.take_along_axis(stages.tail, at, axis=2)[:, :, 0].max(axis=1)
    host = offload.host_fits(batch, offload.offloaded(layers.astype(float), level)) & np.isfinite(time).all(axis=1)
    value[ok] = np.where(host, objective(batch, time.max(axis=1), time.sum(axis=1), tails), np.inf)
    return value
