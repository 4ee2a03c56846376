"""Every configuration on the grid, with its exact values: what is claimed to be best must be best, ties included.

Rows and their integers are the audit's, which shares neither with the search; layouts are enumerated one by one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from cost_models.specs.choices import BACKENDS
from cost_models.specs.configuration import Configuration
from cost_models.strategy import Strategy
from solver.audit.arguments import claimed_row
from solver.audit.models import model_row
from solver.audit.proof import parts, place
from solver.audit.row import Part
from solver.audit.space import every_space
from solver.layout import Layout
from solver.problem import Problem
from tests.oracle.layouts import layouts, pay

HOUR, TICK = 3600, Fraction(1, 10**7)


@dataclass(frozen=True, kw_only=True)
class OnGrid:
    """One configuration that fits and meets the limits."""

    values: tuple[Fraction, ...]
    """Of the objectives in their order, each on a scale of its own; throughput last where it is not among them."""
    simplicity: int
    place: tuple[int, int]
    """Back end and row."""
    plainness: tuple[int, int, int]
    layout: Layout


def simplicity(row: Strategy) -> int:
    """How many techniques a row uses, each with its weight (docs/what-is-proven.md)."""
    weights = {
        "gradient_compression": 8, "parameter_offload": 8, "activation_offload": 8, "optimizer_offload": 6,
    }  # fmt: skip
    degrees = {
        "context_parallel": 4, "virtual_pipeline_stages": 4, "pipeline_parallel": 3, "expert_parallel": 2,
        "tensor_parallel": 2, "recompute_interval": 1,
    }  # fmt: skip
    used = sum(weight for name, weight in weights.items() if getattr(row, name) > 0)
    split = sum(weight for name, weight in degrees.items() if getattr(row, name) > 1)
    return used + split + int(row.zero_stage)


def chain(problem: Problem) -> tuple[str, ...]:
    """The objectives with what decides among equals: throughput, also where a list ends with a number of devices."""
    asked = tuple(dict.fromkeys(problem.objectives))
    return asked if "throughput" in asked and asked[-1] != "gpus" else (*asked, "throughput")


def _values(problem: Problem, row: Strategy, time: int, memory: int) -> dict[str, Fraction]:
    """Less is better in each; factors that are the same for all are left out."""
    batch = problem.job.training.batch_range
    sequences = int(row.global_batch_size) if batch.min != batch.max else 1
    step = Fraction(time, int(row.virtual_pipeline_stages))
    gpus = int(row.world_size)
    each = gpus * step / sequences
    return {
        "throughput": step / sequences,
        "memory": Fraction(memory),
        "gpus": Fraction(gpus),
        "cost": each,
        "energy": each,
        "cost_per_token": gpus * step / int(row.global_batch_size),
    }


def _meets(problem: Problem, row: Strategy, time: int, memory: int) -> bool:
    limits, price = problem.limits, Fraction(problem.job.pool.price_per_gpu_hour or 0)
    step, gpus = Fraction(time, int(row.virtual_pipeline_stages)) * TICK, int(row.world_size)
    tokens = int(row.global_batch_size) * problem.job.training.sequence_length
    most = {
        "max_step_seconds": step,
        "max_memory_bytes": Fraction(memory * 1024),
        "max_cost_per_step": gpus * price * step / HOUR,
        "max_cost_per_token": gpus * price * step / HOUR / tokens,
        "max_energy_per_step": gpus * Fraction(problem.job.device.tdp_watts or 0) * step,
        "max_gpus": Fraction(gpus),
    }
    least = {
        "min_tokens_per_second": tokens / step,
        "min_tokens_per_second_per_gpu": tokens / step / gpus,
        "min_gpus": Fraction(gpus),
    }
    kept = all(value <= limit for name, value in most.items() if (limit := getattr(limits, name)) is not None)
    return kept and all(value >= limit for name, value in least.items() if (limit := getattr(limits, name)) is not None)


def plainness(layout: Layout) -> tuple[int, int, int]:
    """Offloaded layers, recomputation, unevenness."""
    layers = [stage.layers for stage in layout]
    offloaded = sum(stage.offloaded for stage in layout)
    return offloaded, sum(2 * stage.full + stage.selective for stage in layout), max(layers) - min(layers)


def on_offer(problem: Problem) -> int:
    """How many configurations are legal, whether they fit or not."""
    spaces, total = every_space(problem), 0
    for backend, rows in spaces.items():
        for index in range(len(rows)):
            inner = model_row(claimed_row(problem, backend, index, spaces).row, np.inf, np.inf)
            total += 0 if inner.even and inner.num_layers % inner.stages else sum(1 for _ in layouts(inner))
    return total


def everything(problem: Problem) -> Iterator[OnGrid]:
    """Every configuration that fits the devices, the nodes and the limits."""
    spaces, names = every_space(problem), chain(problem)
    for backend, rows in spaces.items():
        for index in range(len(rows)):
            asked = claimed_row(problem, backend, index, spaces)
            row, inner = asked.strategy, model_row(asked.row, np.inf, np.inf)
            if inner.even and inner.num_layers % inner.stages:
                continue
            score = simplicity(row)
            for layout in layouts(inner):
                paid = pay(inner, layout)
                if not paid.fits or not _meets(problem, row, paid.time, paid.memory):
                    continue
                if not asked.row.shares(tuple(Part(s.layers, s.full, s.selective, s.offloaded) for s in layout)):
                    continue
                values = _values(problem, row, paid.time, paid.memory)
                yield OnGrid(
                    values=tuple(values[name] for name in names),
                    simplicity=score,
                    place=(BACKENDS.index(backend), index),
                    plainness=plainness(layout),
                    layout=layout,
                )


def best(problem: Problem) -> tuple[OnGrid, tuple[Fraction, ...]] | None:
    """The configuration that the claim names (docs/what-is-proven.md), and the optima; None where nothing fits."""
    found = list(everything(problem))
    if not found:
        return None
    optima = min(one.values for one in found)
    loose = 1 + Fraction(problem.objective_tolerance)
    within = [one for one in found if all(v <= o * loose for v, o in zip(one.values, optima, strict=True))]
    if not problem.objective_tolerance:
        within = [one for one in found if one.values == optima]
    row = min(within, key=lambda one: (one.simplicity, one.values[-1], one.place))
    alike = [one for one in within if one.place == row.place and one.values[-1] == row.values[-1]]
    return min(alike, key=lambda one: one.plainness), optima


def where(problem: Problem, configuration: Configuration) -> tuple[tuple[int, int], tuple[int, int, int]]:
    """Place and plainness of an answer."""
    at = place(configuration, every_space(problem))
    assert at is not None, "the answer is a legal row"
    stages = parts(configuration)
    layers = [stage.layers for stage in stages]
    repeated = sum(2 * stage.full + stage.selective for stage in stages)
    return (at.backend, at.row), (sum(stage.offloaded for stage in stages), repeated, max(layers) - min(layers))
