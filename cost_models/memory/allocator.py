"""From allocated bytes to what the device must hold: quantiles of the ledger's error and of the allocator's
fragmentation.
"""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Final

import numpy as np

from cost_models.arrays import Array, choose
from cost_models.calibration import Calibration
from cost_models.errors import BrokenRule
from cost_models.job import Job
from cost_models.memory.architectures import unknown
from cost_models.memory.options import facts_of
from cost_models.memory.setting import Setting
from cost_models.specs.choices import BACKENDS
from cost_models.specs.configuration import Configuration
from cost_models.strategy import Strategy

_Q99 = NormalDist().inv_cdf(0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """Factors on allocated bytes, by candidate."""

    allocated_quantile: Array
    allocated_median: Array
    allocated_lower: Array
    fragmentation_median: Array
    fragmentation_quantile: Array


def exponent(oom_risk: float) -> float:
    """Share of the way from the median to the 99th percentile, in logarithms: 0 at a risk of 0.5, 1 at 0.01.

    Raises:
        BrokenRule: the risk is no probability strictly between 0 and 1.
    """
    if not 0.0 < oom_risk < 1.0:
        raise BrokenRule(f"oom_risk {oom_risk} must lie strictly between 0 and 1")
    return round(NormalDist().inv_cdf(1.0 - oom_risk) / _Q99, 9)


def quantile(median: float, q99: float, power: float) -> float:
    """A log-normal's quantile from its median and 99th percentile, rounded so that it is the same everywhere."""
    return float(f"{median * (q99 / median) ** power:.9g}")


def allocated_factors(calibration: Calibration, error: str, power: float) -> tuple[float, float, float]:
    """Upper quantile, median and lower quantile of allocated bytes over the ledger's, of one regime on one device.

    The median is the ledger itself, and both sides are alike, but where a site's runs on the device state
    `allocated_median` and `allocated_q01`.
    """
    q99 = calibration("allocated_q99", error)
    median = calibration("allocated_median", error) if calibration.known("allocated_median", error) else 1.0
    q01 = calibration("allocated_q01", error) if calibration.known("allocated_q01", error) else median * median / q99
    return quantile(median, q99, power), median, quantile(median, q01, power)


def margin(setting: Setting, calibration: Calibration, oom_risk: float) -> Margin:
    """The factors of each candidate's regime: ledger, attention, experts, pipeline, size of the card."""
    power = exponent(oom_risk)
    shape = np.shape(setting.tensor)
    calibration = calibration.on(setting.job.device.name, setting.job.device.family)

    def factor(regime: str) -> tuple[float, ...]:
        allocated, median = (
            allocated_factors(calibration, error_regime(regime), power),
            calibration("fragmentation", regime),
        )
        return *allocated, median, quantile(median, calibration("fragmentation_q99", regime), power)

    free = setting.model.moe is not None and setting.job.training.expert_imbalance > 1.0
    conditions, regimes = _conditions(setting, calibration), _REGIMES
    if setting.single:  # no other regime's factors are looked at
        at = next(i for i, condition in enumerate(conditions) if condition)
        conditions, regimes = conditions[at : at + 1], _REGIMES[at : at + 1]
    choices = [factor(regime) for regime in regimes]
    columns: list[Any] = [np.full(shape, c)[()] for c in choices[-1]]
    for condition, values in zip(reversed(conditions[:-1]), reversed(choices[:-1]), strict=True):
        columns = [choose(condition, value, column) for value, column in zip(values, columns, strict=True)]
    if free:
        loose = quantile(1.0, calibration("allocated_q99", "megatron_moe_free"), power)
        columns[0] = choose(power >= 0, np.maximum(columns[0], loose), columns[0])
    if unknown(setting.model):
        generic = quantile(1.0, calibration("allocated_q99", "eager_unknown"), power)
        wider = np.maximum(columns[0], generic) if power >= 0 else np.minimum(columns[0], generic)
        columns[0] = choose(setting.eager, wider, columns[0])
    return Margin(
        allocated_quantile=columns[0], allocated_median=columns[1], allocated_lower=columns[2],
        fragmentation_median=columns[3], fragmentation_quantile=columns[4],
    )  # fmt: skip


_REGIMES: Final[tuple[str, ...]] = (
    "cpu",
    "eager_materialised",
    "eager_small_card",
    "eager",
    "megatron_deepspeed",
    "megatron_moe",
    "megatron_pipeline",
    "megatron",
)


_EAGER: Final = ("eager_materialised", "eager_small_card", "eager")
_MEGATRON: Final = ("megatron_moe", "megatron_pipeline", "megatron")


def error_regime(regime: str) -> str:
    """The regime of the ledger's own error, coarser than that of fragmentation."""
    return {"eager_small_card": "eager", "megatron_pipeline": "megatron"}.get(regime, regime)


def regimes_of(regime: str) -> tuple[str, ...]:
    """The regimes of the same allocator and ledger: those of eager back ends, or those of Megatron-LM."""
    for kin in (_EAGER, _MEGATRON):
        if regime in kin:
            return kin
    return (regime,)


def regime_of(job: Job, configuration: Configuration, calibration: Calibration) -> str:
    """The regime of one configuration."""
    strategy = Strategy.of(configuration)
    setting = Setting(job=job, strategy=strategy, frameworks=facts_of(job.training, None))
    conditions = _conditions(setting, calibration)
    return next(name for name, condition in zip(_REGIMES, conditions, strict=True) if condition)


def _conditions(setting: Setting, calibration: Calibration) -> list[Any]:
    """Which regime each candidate is in, in the order of _REGIMES."""
    device, eager = setting.job.device, setting.eager
    everywhere = np.full(np.shape(setting.tensor), True)[()]
    small = device.usable_memory_bytes < calibration("fragmentation.small_card_bytes")
    split = (setting.column("pipeline_parallel") > 1) | (setting.column("context_parallel") > 1)
    return [
        everywhere & (device.kind == "cpu"),
        eager & setting.materialised,
        eager & small,
        eager,
        everywhere & (setting.column("backend") == BACKENDS.index("megatron-deepspeed")),
        everywhere & (setting.model.moe is not None),
        everywhere & split,
        everywhere,
    ]
