"""From the named ledgers to the prediction of a plan: presentation only, the formulas are the ledgers'."""

from collections.abc import Mapping
from typing import Final, cast

from cost_models.calibration import Calibration
from cost_models.job import Job
from cost_models.ledger import Estimate, MemoryLedger, TimeLedger, estimate
from cost_models.placement import in_pool
from cost_models.specs.configuration import Configuration
from planner.plan import (
    Binding,
    MemoryPrediction,
    Phase,
    Prediction,
    Quantity,
    StagePrediction,
    TimePrediction,
    Verdict,
)
from planner.uncertainty import step_interval

PHASES: Final[tuple[Phase, ...]] = ("load", "first_step", "step", "eval", "save")
AT_SITE: Final = "measured_at_site"
"""Beside the terms of memory: what a device's own runs held beyond their sum, or less."""
SIGNIFICANT_DIGITS: Final = 9
"""Digits kept of seconds and ratios, so that the last bits of a sum do not show."""


def rounded(value: float, digits: int = SIGNIFICANT_DIGITS) -> float:
    """A float with the digits that are shown and promised."""
    return float(f"{value:.{digits}g}")


def predict(
    job: Job, configuration: Configuration, calibration: Calibration, *, oom_risk: float, replay: bool = True
) -> Prediction:
    """Price exactly this configuration. `replay` asks for reserved bytes from a replay of the allocator (tens of ms).

    Raises:
        MissingCalibration: a term has no constant.
    """
    ledgers = estimate(job, configuration, calibration, oom_risk=oom_risk)
    return prediction(job, configuration, calibration, ledgers, oom_risk=oom_risk, replay=replay)


def prediction(
    job: Job, configuration: Configuration, calibration: Calibration, ledgers: Estimate, *, oom_risk: float,
    replay: bool = False,
) -> Prediction:  # fmt: skip
    """Both ledgers in the shape of the plan."""
    ratio = None
    if replay:
        from cost_models.memory import reserved_ratio

        stage = ledgers.memory.binding[0]
        there = in_pool(job, configuration.stages[stage].pool)
        ratio = reserved_ratio(there, configuration, calibration, stage=stage)
    return Prediction(
        memory=memory_prediction(ledgers.memory, oom_risk=oom_risk, reserved_ratio=ratio),
        time=time_prediction(job, configuration, calibration, ledgers.time),
    )


def memory_prediction(
    ledger: MemoryLedger, *, oom_risk: float, reserved_ratio: float | None = None
) -> MemoryPrediction:
    """The memory ledger with its intervals, its verdict, and where it is fullest.

    `reserved_ratio` is a replay's reserved over allocated bytes; it moves the medians that are reported, never the
    verdict nor the conservative bytes, which are the solve's. Reserved bytes may exceed the conservative ones: the
    allocator returns what it only caches when the device is full.
    """
    stage, instant = ledger.binding
    terms, site = ledger.allocated_bytes, ledger.allocated_median
    allocated, most = terms * site, terms * ledger.allocated_quantile
    lower = None if ledger.allocated_lower is None else terms * ledger.allocated_lower
    fixed = ledger.context_bytes + ledger.communicator_bytes
    median = ledger.fragmentation_median if reserved_ratio is None else reserved_ratio
    wide = max(ledger.fragmentation_quantile, median)
    reserved = _quantity(allocated * median, most * wide)
    device = Quantity(
        median_bytes=round(reserved.median_bytes + fixed),
        lower_bytes=round(reserved.lower_bytes + fixed),
        upper_bytes=round(reserved.upper_bytes + fixed),
    )
    phases: dict[Phase, int] = {}
    for phase in PHASES:
        sizes = [s.allocated(i) for s in ledger.stages for i in s.instants if ledger.phase_of[i] == phase]
        if sizes:
            phases[phase] = round(max(sizes) * site)
    return MemoryPrediction(
        verdict=verdict(ledger),
        oom_probability=rounded(ledger.oom_probability(oom_risk), digits=6),
        allocated=_quantity(allocated, most, lower),
        reserved=reserved,
        device=device,
        conservative_bytes=round(ledger.conservative_bytes),
        usable_bytes=round(ledger.usable_bytes),
        binding=Binding(stage=stage, phase=cast(Phase, ledger.phase_of[instant]), instant=instant),
        breakdown_bytes=_bytes(ledger.stages[stage].instants[instant], site),
        per_stage=tuple(_stage(ledger, index) for index in range(len(ledger.stages))),
        phases=phases,
        host_bytes=round(ledger.host_node_bytes),
        host_usable_bytes=round(ledger.host_usable_bytes),
    )


def verdict(ledger: MemoryLedger) -> Verdict:
    """`fits` within the asked risk, `at_risk` when only the median fits, `does_not_fit` otherwise."""
    if ledger.fits:
        return "fits"
    host_fits = ledger.host_node_bytes <= ledger.host_usable_bytes
    return "at_risk" if host_fits and ledger.device_bytes <= ledger.usable_bytes else "does_not_fit"


def _quantity(median: float, upper: float, lower: float | None = None) -> Quantity:
    """An interval that is symmetric in the logarithm, as the shipped errors are, where no lower end is stated."""
    if lower is None:
        lower = median * median / upper if upper else median
    return Quantity(median_bytes=round(median), lower_bytes=round(lower), upper_bytes=round(upper))


def _bytes(terms: Mapping[str, float], site: float) -> dict[str, int]:
    """The terms, and how far a device's own runs were from their sum."""
    found = {name: round(size) for name, size in terms.items()}
    beyond = round(sum(terms.values()) * (site - 1.0))
    return {**found, AT_SITE: beyond} if beyond else found


def _stage(ledger: MemoryLedger, index: int) -> StagePrediction:
    stage, site = ledger.stages[index], ledger.allocated_median
    fullest = max(stage.instants, key=stage.allocated)
    return StagePrediction(
        stage=stage.stage,
        instant=fullest,
        allocated_bytes=round(stage.allocated(fullest) * site),
        instants_bytes={instant: _bytes(terms, site) for instant, terms in stage.instants.items()},
        host_bytes=round(stage.host_bytes),
    )


def time_prediction(
    job: Job, configuration: Configuration, calibration: Calibration, ledger: TimeLedger
) -> TimePrediction:
    """The time ledger with its rates."""
    step, gpus = ledger.step_seconds, configuration.world_size
    batch = configuration.global_batch_size
    return TimePrediction(
        step_seconds=rounded(step),
        interval_seconds={
            key: (rounded(low), rounded(high))
            for key, (low, high) in step_interval(job, configuration, calibration, step).items()
        },
        breakdown_seconds={name: rounded(value) for name, value in ledger.exposed.items()},
        hidden_seconds={name: rounded(value) for name, value in ledger.hidden.items()},
        tokens_per_second_per_gpu=rounded(batch * job.training.sequence_length / step / gpus),
        samples_per_second=rounded(batch / step),
        mfu=rounded(ledger.model_flops / step / ledger.peak_flops),
        communication_fraction=rounded(ledger.communication_fraction),
    )
