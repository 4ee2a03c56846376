"""How sure a prediction is: which class of knowledge it rests on, and the interval that follows."""

from typing import Final, Literal

from cost_models.calibration import Calibration
from cost_models.job import Job
from cost_models.specs.configuration import Configuration
from planner.plan import KnowledgeClass

Level = Literal["80", "90"]
LEVELS: Final[tuple[Level, ...]] = ("80", "90")


def knowledge_class(job: Job, configuration: Configuration, calibration: Calibration) -> KnowledgeClass:
    """`known_stack`: published runs of the framework on the family; `new_device`: of the framework; else `unseen`."""
    enough = calibration("known_stack_runs")
    counted: dict[tuple[str, str], float] = {}
    for key, factor in calibration.factors.items():
        if key.startswith("measured_runs."):
            _, framework, family = key.split(".", 2)
            counted[framework, family] = factor.value
    stack = (configuration.backend.name, job.device.family)
    if counted.get(stack, 0) >= enough:
        return "known_stack"
    of_framework = sum(runs for (framework, _), runs in counted.items() if framework == stack[0])
    return "new_device" if of_framework >= enough else "unseen"


def step_interval(
    job: Job, configuration: Configuration, calibration: Calibration, step_seconds: float
) -> dict[Level, tuple[float, float]]:
    """Central intervals of the step time, symmetric in the logarithm around the prediction. [s]

    Raises:
        MissingCalibration: the calibration states no spread.
    """
    known = knowledge_class(job, configuration, calibration)
    factors = {level: calibration("step_time_quantile", f"{known}.{level}") for level in LEVELS}
    return {level: (step_seconds / factor, step_seconds * factor) for level, factor in factors.items()}


def within_noise(loss: float, calibration: Calibration) -> bool:
    """Whether a relative loss is smaller than what predictions can rank."""
    return loss <= calibration("ranking_noise")
