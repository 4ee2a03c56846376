"""How sure a prediction is: which class of knowledge it rests on, and the interval that follows."""

from collections.abc import Sequence
from typing import Final, Literal

from cost_models.calibration import Calibration
from cost_models.errors import MissingCalibration
from cost_models.job import Job
from cost_models.memory import allocated_factors, error_regime, exponent, regime_of
from cost_models.placement import pool_jobs
from cost_models.specs.configuration import Configuration
from planner.plan import KnowledgeClass

Level = Literal["80", "90"]
LEVELS: Final[tuple[Level, ...]] = ("80", "90")
ADAPTERS: Final = "-adapters"
"""Ends the name of a framework that trains adapters, as in the constants of the launch floor."""
UNLEARNED: Final = "unlearned"
"""Begins the factors that note how far a site's runs were off where no constant follows them."""
DRIFT: Final = "drift"
"""Begins the factors that note how far the last runs of a framework were off: `drift.step_seconds.ddp@cpu`."""
SMALL_WIDTH: Final = 2048
"""Hidden size below which the host's launches set the pace, so that errors are of another kind."""


def knowledge_class(job: Job, configuration: Configuration, calibration: Calibration) -> KnowledgeClass:
    """`known_stack`: published runs of the framework on the family; `new_device`: of the framework; else `unseen`.

    Runs that train adapters tell of adapters only on their device; elsewhere any run of the framework tells something.
    Of several pools the least known counts.
    """
    enough = calibration("known_stack_runs")
    counted: dict[tuple[str, str], float] = {}
    for key, factor in calibration.factors.items():
        if key.startswith("measured_runs."):
            _, framework, family = key.split(".", 2)
            counted[framework, family] = factor.value
    stacks = [stack_of(seen, configuration) for seen in pool_jobs(job, configuration)]
    if all(counted.get(stack, 0) >= enough for stack in stacks):
        return "known_stack"
    framework = _whole(stacks[0][0])
    of_framework = sum(runs for (name, _), runs in counted.items() if _whole(name) == framework)
    return "new_device" if of_framework >= enough else "unseen"


def stack_of(job: Job, configuration: Configuration) -> tuple[str, str]:
    """Framework and device family; a framework that trains adapters is another one."""
    adapters = ADAPTERS if job.training.adapters is not None else ""
    return f"{configuration.backend.name}{adapters}", job.device.family


def _whole(framework: str) -> str:
    return framework.removesuffix(ADAPTERS)


def kin_class(known: KnowledgeClass, *, kin: bool) -> KnowledgeClass:
    """A framework that is only kin to a measured one is no known stack, even on a known device."""
    return "new_device" if kin and known == "known_stack" else known


def step_interval(
    job: Job, configuration: Configuration, calibration: Calibration, step_seconds: float, *, kin: bool = False
) -> dict[Level, tuple[float, float]]:
    """Central intervals of the step time; of several pools the widest. [s]

    Factors on the prediction from the stack's own past errors where it has enough of them, else from its class's.
    `kin`: the framework is only priced as this one.

    Raises:
        MissingCalibration: the calibration states no spread.
    """
    known = kin_class(knowledge_class(job, configuration, calibration), kin=kin)
    found = [
        _step_interval(seen, configuration, calibration, step_seconds, known) for seen in pool_jobs(job, configuration)
    ]
    return {level: (min(f[level][0] for f in found), max(f[level][1] for f in found)) for level in LEVELS}


def _step_interval(
    job: Job, configuration: Configuration, calibration: Calibration, step_seconds: float, known: KnowledgeClass
) -> dict[Level, tuple[float, float]]:
    names: list[str] = [known]
    if known == "known_stack":
        experts = [f"{known}_moe"] if job.model.moe is not None else []
        names = [stack_key(job, configuration), *experts, known]
    here = calibration.on(job.device.name, job.device.family)
    if site_knows(job, configuration, calibration, "step_time_low"):
        names = [SITE]
    wider = here("step_time_widening")
    return {
        level: (
            step_seconds * here("step_time_low", *(f"{name}.{level}" for name in names)) / wider,
            step_seconds * here("step_time_high", *(f"{name}.{level}" for name in names)) * wider,
        )
        for level in LEVELS
    }


SITE: Final = "site"
"""Under which a device keeps how far predictions were off on the site's own runs."""


def site_knows(job: Job, configuration: Configuration, calibration: Calibration, factor: str) -> bool:
    """Whether the site's own runs on this device say how far predictions are off, for a stack it has run."""
    here = calibration.on(job.device.name, job.device.family)
    ran = here.known("measured_runs", ".".join(stack_of(job, configuration)))
    return ran and here.known(factor, f"{SITE}.{LEVELS[0]}")


def stack_key(job: Job, configuration: Configuration) -> str:
    """Under which a stack keeps its own past errors: framework, device family, and experts or a small width apart."""
    small = job.model.hidden_size < SMALL_WIDTH
    kind = ".small" if small else ".moe" if job.model.moe is not None else ""
    return f"{'.'.join(stack_of(job, configuration))}{kind}"


def memory_class(job: Job, configuration: Configuration) -> str:
    """What decides how well a peak is known: back end, mixture of experts, kernels that keep the scores."""
    experts = ".moe" if job.model.moe is not None else ""
    scores = ".eager" if configuration.attention == "eager" else ""
    return f"{configuration.backend.name}{experts}{scores}"


def memory_interval(
    job: Job,
    configuration: Configuration,
    calibration: Calibration,
    kind: str,
    sizes: Sequence[float],
    *,
    kin: bool = False,
) -> dict[Level, tuple[float, float]]:
    """Central intervals of a peak of one kind (allocated, reserved, device), over all its scenarios. [bytes]

    Factors from past errors on the lowest and on the highest scenario; empty where the calibration states none. Where
    the device's own runs have corrected what plans expect of allocated bytes, those are the plans' own quantiles. A
    framework that is only priced as this one (`kin`) is known no better than the worst class of that kind of peak.
    """
    if kin:
        return _widest(calibration, kind, sizes)
    here = calibration.on(job.device.name, job.device.family)
    names: tuple[str, ...] = (f"{memory_class(job, configuration)}.{kind}", f"any.{kind}")
    found: dict[Level, tuple[float, float]] = {}
    corrected = kind == "allocated" and any(key.startswith("allocated_median.") for key in here.factors)
    error = error_regime(regime_of(job, configuration, calibration)) if corrected else ""
    if corrected and here.known("allocated_median", error):
        for level in LEVELS:
            upper, median, lower = allocated_factors(here, error, exponent(tail(level)))
            found[level] = min(sizes) * lower / median, max(sizes) * upper / median
        return found
    for level in LEVELS:
        keys = [f"{name}.{level}" for name in names]
        try:
            low, high = here("memory_low", *keys), here("memory_high", *keys)
        except MissingCalibration:
            return {}
        found[level] = min(sizes) * low, max(sizes) * high
    return found


def _widest(calibration: Calibration, kind: str, sizes: Sequence[float]) -> dict[Level, tuple[float, float]]:
    found: dict[Level, tuple[float, float]] = {}
    for level in LEVELS:
        ends = [
            [
                f.value
                for key, f in calibration.factors.items()
                if key.startswith(side) and key.endswith(f".{kind}.{level}")
            ]
            for side in ("memory_low.", "memory_high.")
        ]
        if all(ends):
            found[level] = min(sizes) * min(ends[0]), max(sizes) * max(ends[1])
    return found


def tail(level: Level) -> float:
    """Probability beyond one end of a central interval."""
    return round((100 - int(level)) / 200, 3)


def within_noise(loss: float, calibration: Calibration) -> bool:
    """Whether a relative loss is smaller than what predictions can rank."""
    return loss <= calibration("ranking_noise")
