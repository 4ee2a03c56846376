"""The limits of a problem, checked on one configuration by the unrounded ledger."""

from collections.abc import Iterator

from cost_models.ledger import estimate
from cost_models.placement import in_use
from cost_models.specs.choices import BACKENDS
from cost_models.specs.configuration import Configuration
from solver.audit.arguments import claimed_row
from solver.audit.grid import TICK
from solver.audit.pools import arranged
from solver.audit.proof import parts, place
from solver.audit.space import every_space
from solver.problem import Problem


def broken(problem: Problem, configuration: Configuration) -> Iterator[str]:
    """Limits that a configuration misses; and a step on the grid that rounding does not explain."""
    used = in_use(problem.job, configuration)
    pools = problem.job.cluster.pools
    ledger, limits = (
        estimate(problem.job, configuration, problem.calibration, oom_risk=problem.oom_risk),
        problem.limits,
    )
    step, gpus = ledger.time.step_seconds, configuration.world_size
    cost = sum(n * (pools[pool].price_per_gpu_hour or 0.0) for pool, n in used.items()) * step / 3600
    watts = sum(n * (pools[pool].device.tdp_watts or 0.0) for pool, n in used.items())
    tokens = configuration.global_batch_size * problem.job.training.sequence_length
    reached = {
        "max_step_seconds": step,
        "max_memory_bytes": ledger.memory.allocated_bytes,
        "max_host_memory_bytes": ledger.memory.host_node_bytes,
        "max_cost_per_step": cost,
        "max_cost_per_token": cost / tokens,
        "max_energy_per_step": watts * step,
        "min_tokens_per_second": tokens / step,
        "min_tokens_per_second_per_gpu": tokens / step / gpus,
        "max_communication_fraction": ledger.time.communication_fraction,
        "max_gpus": gpus,
        "min_gpus": gpus,
    }
    for name, value in reached.items():
        stated = getattr(limits, name)
        if stated is not None and (value < stated if name.startswith("min_") else value > stated):
            yield f"{name} is {stated} but the configuration has {value}"
    yield from _off_grid(problem, configuration, step)


def _off_grid(problem: Problem, configuration: Configuration, step: float) -> Iterator[str]:
    part = arranged(problem, configuration)
    if part is None:
        return
    spaces = every_space(part)
    best = place(configuration, spaces)
    if best is None:
        return
    row = claimed_row(part, BACKENDS[best.backend], best.row, spaces).row
    layers, stages, virtual = len(row.order), row.stages, row.virtual
    on_grid = row.cost(parts(configuration))[0] / virtual * TICK
    slack = ((row.steps - 1 / virtual) * (layers + 1) + (layers + stages) / virtual + 2 * layers + 2) * TICK
    if not -1e-9 * step <= on_grid - step <= slack + 1e-9 * step:
        yield f"the step takes {step!r} s by the ledger and {on_grid!r} s on the grid, which rounding does not explain"
