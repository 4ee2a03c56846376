"""What the devices of pools can do at best: a floor for every arrangement, before any of its rows is enumerated."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from cost_models.arrays import IntArray
from cost_models.calibration import Calibration
from cost_models.job import Job
from cost_models.placement import in_pool
from cost_models.specs.choices import BACKENDS, PRECISIONS, Backend
from cost_models.strategy import Strategy
from cost_models.table import MemoryTable, TimeTable
from solver.arrangement import Arrangement
from solver.bounds.topology import lightest
from solver.objectives import Objective
from solver.problem import Problem
from solver.rounding import TICK_SECONDS
from solver.rows import layer_counts
from solver.space import backend_space, feature_columns, together

SLACK: Final = 1 - 1e-9
"""Rounding of floats may not rule out an arrangement."""
MANY: Final = 2**20
"""Sequences in a micro-batch at which what does not grow with them no longer counts."""


def device_ticks(problem: Problem, price: Callable[[Job, Strategy, Calibration], TimeTable]) -> dict[int, float]:
    """Device time of each pool for the layers of one sequence, at the least. [ticks]

    Layers as one rank computes them alone, without recomputation, in one huge micro-batch: splitting them adds
    communication, smaller micro-batches add launches, and neither takes anything away.
    """
    found = {}
    for pool in problem.pools:
        asked = replace(problem, arrangement=Arrangement(0, ((pool, 1),)))
        alone = [lightest(_alone(asked, backend, feature_columns(asked), MANY)) for backend in asked.backends]
        strategy = together(alone)
        best = np.inf
        if len(strategy):
            table = price(in_pool(problem.job, pool), strategy, problem.calibration)
            best = float((table.layer.min(axis=2) @ layer_counts(problem.job)).min()) / MANY
        found[pool] = best / TICK_SECONDS
    return found


def device_bytes(
    problem: Problem, price: Callable[[Job, Strategy, Calibration, float], MemoryTable]
) -> tuple[float, dict[int, float]]:
    """What all devices together must hold at the least, and what one device of each pool holds at most. [bytes]

    The states of all layers once, as one rank alone holds them: splitting them over ranks takes nothing away, and
    replicas, activations and the ends of the model add to them.
    """
    need, holds = np.inf, {}
    for pool in problem.pools:
        asked = replace(problem, arrangement=Arrangement(0, ((pool, 1),)))
        holds[pool] = 0.0
        for backend in asked.backends:
            strategy = _alone(asked, backend, backend_space(asked, backend).features, 1)
            if not len(strategy):
                continue
            table = price(in_pool(problem.job, pool), strategy, problem.calibration, problem.oom_risk)
            saved = table.offload_saving * (np.asarray(strategy.optimizer_offload) > 0)[:, None]
            held = np.einsum("nji,j->ni", table.layer - saved[:, :, None], layer_counts(problem.job))
            need = min(need, float(held.max(axis=1).min()))
            holds[pool] = max(holds[pool], float(table.capacity.max()))
    return need * SLACK, holds


def _alone(problem: Problem, backend: Backend, columns: Mapping[str, IntArray], sequences: int) -> Strategy:
    """One rank with a micro-batch of so many sequences, for every set of features."""
    device = problem.job.cluster.pools[problem.pools[0]].device
    able = [device.multiplies(name) for name in PRECISIONS]
    columns = {name: column[np.array(able)[columns["precision"]]] for name, column in columns.items()}
    size = len(columns["zero_stage"])
    one = np.ones(size, dtype=np.int64)
    degrees = dict.fromkeys(
        (
            "tensor_parallel", "context_parallel", "expert_parallel", "expert_tensor_parallel", "pipeline_parallel",
            "virtual_pipeline_stages", "data_parallel", "gradient_accumulation_steps",
        ),
        one,
    )  # fmt: skip
    return Strategy(backend=one * BACKENDS.index(backend), micro_batch_size=one * sequences, **degrees, **columns)


def arrangement_floor(problem: Problem, arrangement: Arrangement, goal: Objective, ticks: dict[int, float]) -> float:
    r"""Lower bound on an objective over all rows of an arrangement.

    .. math:: T \ge B \Big/ \sum_k \frac{n_k}{w_k}

    for B sequences, n devices and w device time per sequence of each pool: no device does more than compute all along.
    """
    if goal.goal != "time" or not all(ticks[pool] > 0 for pool, _ in arrangement.parts):
        return 0.0
    speed = sum(count / ticks[pool] for pool, count in arrangement.parts)
    sequences = 1 if goal.per_sequence else problem.job.training.batch_range.min
    devices = float(goal.rate) if goal.rate is not None else 1.0
    return sequences * devices / speed
