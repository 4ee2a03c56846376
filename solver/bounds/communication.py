r"""The most that the communication of a row may leave of its limit: rows that cannot keep it are never laid out.

With the slowest stage s, the share sigma, and v m micro-batch slots, every layout that keeps the limit has

.. math:: 0 \le \sigma\,[(v m - 1)\,t_s + \sum_i t_i + v (g + f)] - v\,[m\,c_s + h + f_c]

A layer of the slowest stage adds to both sides at once, in the mode that leaves most; elsewhere, to time alone.
"""

from collections.abc import Iterable

import numpy as np

from cost_models.arrays import FloatArray
from cost_models.strategy import Strategy
from solver.bounds.first import class_weights
from solver.rounding import IntegerTime

FLOATS = 1e-9
"""More than floats lose of a sum, as a share of it."""


def most_left(
    views: Iterable[tuple[IntegerTime, IntegerTime]], strategy: Strategy, layers: FloatArray, share: float
) -> FloatArray:
    """Upper bound on what any layout leaves of the limit; below 0 none keeps it. (n,) [ticks times v]

    `views`: times of all rows and what of them is communication, as every part of the cluster sees them. The largest of
    each term over the views bounds stages in any of them.
    """
    v, m = (
        np.asarray(n, dtype=float) for n in (strategy.virtual_pipeline_stages, strategy.gradient_accumulation_steps)
    )
    stages = np.asarray(strategy.pipeline_parallel)
    weights = class_weights(stages)
    slots, spent = share * (v * m - 1), v * m
    terms = [_terms(time, told, weights, layers, slots, spent) for time, told in views]
    slowest, by_layer, every, tail, told_tail, fixed, told_fixed = (
        np.maximum.reduce(parts) for parts in zip(*terms, strict=True)
    )
    # Alone, a stage holds all layers; of several, as many as leave most.
    held = np.where((stages == 1)[:, None], by_layer, np.maximum(by_layer, 0)) @ layers
    left = slowest + held + share * (every + v * (tail + fixed)) - v * (told_fixed - told_tail)
    scale = share * (every * (v * m) + v * (tail + fixed))
    result: FloatArray = left + FLOATS * scale
    return result


def _terms(
    time: IntegerTime, told: IntegerTime, weights: FloatArray, layers: FloatArray, slots: FloatArray, spent: FloatArray
) -> tuple[FloatArray, ...]:
    """What one view says, everything such that more of it leaves more. (told_fixed: longest of the views.)"""
    occurs = weights > 0
    stage = np.where(occurs, slots[:, None] * time.stage - spent[:, None] * told.stage, -np.inf).max(axis=1)
    by_mode = slots[:, None, None] * time.layer - spent[:, None, None] * told.layer
    every = (weights * time.stage).sum(axis=1) + time.layer.max(axis=2) @ layers
    after = time.layer_tail + np.maximum(time.layer_offload, 0)
    tail = np.where(occurs, time.stage_tail, 0).max(axis=1) + np.maximum(after, 0) @ layers
    least = np.where(occurs, told.stage_tail, np.inf).min(axis=1)
    return stage, by_mode.max(axis=2), every, tail, -least, time.fixed, told.fixed
