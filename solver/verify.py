"""Verify: the winner is priced again, whole, by the scalar ledger; the coefficient table has no part in it."""

from cost_models.ledger import Estimate, estimate
from cost_models.placement import Placement
from cost_models.specs.choices import BACKENDS
from cost_models.specs.configuration import BackendChoice, Configuration, RecomputeCounts, Stage
from cost_models.strategy import Strategy
from solver.errors import VerificationFailed
from solver.incumbent import Incumbent
from solver.layout import Layout
from solver.legality import legality
from solver.problem import Problem
from solver.rounding import rounding_ticks, seconds


def configuration(problem: Problem, strategy: Strategy, layout: Layout, placement: Placement = ()) -> Configuration:
    """A row and its layout under their own names."""
    training, name = problem.job.training, BACKENDS[int(strategy.backend)]
    stages = tuple(
        Stage(
            pool=pool,
            layers=s.layers,
            recompute=RecomputeCounts(
                none=s.layers - s.full - s.selective,
                selective=s.selective,
                full=s.full,
                interval=int(strategy.recompute_interval),
            ),
            optimizer_layers_offloaded=s.offloaded,
        )
        for s, pool in zip(layout, placement or (0,) * len(layout), strict=True)
    )
    return Configuration(
        backend=BackendChoice(name=name, release_range=legality(name).release_range),
        stages=stages,
        optimizer=training.optimizer,
        lora=training.adapters,
        **strategy.configuration_columns(),
    )


def rounding_seconds(found: Incumbent) -> float:
    """Most that rounding can have added to the step of a configuration."""
    row = found.row
    ticks = rounding_ticks(
        stages=row.stages, virtual=row.virtual, micro_batches=row.micro_batches, layers=row.num_layers
    )
    return seconds(ticks)


def step_seconds(found: Incumbent) -> float:
    """The integer step time of a configuration."""
    return seconds(found.cost.time / found.row.virtual)


def verify_memory(problem: Problem, chosen: Configuration) -> Estimate:
    """The ledger of a configuration that is taken to fit.

    Raises:
        VerificationFailed: the ledger says that it does not.
    """
    ledger = estimate(problem.job, chosen, problem.calibration, oom_risk=problem.oom_risk)
    memory = ledger.memory
    if not memory.fits:
        stage, instant = memory.binding
        raise VerificationFailed(
            f"stage {stage} at {instant} needs {memory.conservative_bytes:.0f} of {memory.usable_bytes:.0f} bytes, "
            f"host {memory.host_node_bytes:.0f} of {memory.host_usable_bytes:.0f}; the search took it to fit: {chosen}"
        )
    return ledger


def verify(problem: Problem, found: Incumbent) -> Estimate:
    """The ledger of the winner.

    Raises:
        VerificationFailed: the ledger says that it does not fit, or takes another time than the search found.
    """
    chosen = configuration(problem, found.strategy, found.layout, found.placement)
    ledger = verify_memory(problem, chosen)
    found_seconds, slack = step_seconds(found), rounding_seconds(found)
    excess = found_seconds - ledger.time.step_seconds
    tolerance = 1e-9 * found_seconds
    if not -tolerance <= excess <= slack + tolerance:
        raise VerificationFailed(
            f"the step takes {ledger.time.step_seconds!r} s by the ledger and {found_seconds!r} s by the search, "
            f"which rounding (at most {slack!r} s) does not explain: {chosen}"
        )
    return ledger
