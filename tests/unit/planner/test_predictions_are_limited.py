"""Every quantity that an answer predicts can be limited, by a limit of its own or by one that says the same."""

from planner.constraints import LIMITS, Constraints
from planner.plan import MemoryPrediction, TimePrediction
from solver.problem import SIDE, Limits

OF_TIME = {
    "step_seconds": "max_step_seconds",
    "interval_seconds": "max_step_seconds",  # a factor of the step
    "tokens_per_second_per_gpu": "min_tokens_per_second_per_gpu",
    "samples_per_second": "min_tokens_per_second",  # over the sequence length
    "mfu": "min_tokens_per_second_per_gpu",  # over the FLOPs of a token and the peak of the device
    "communication_fraction": "max_communication_fraction",
    "breakdown_seconds": "max_communication_fraction",  # what of it is not compute
    "hidden_seconds": "max_step_seconds",  # costs the step nothing
}
OF_MEMORY = {
    "verdict": "oom_risk",
    "oom_probability": "oom_risk",
    "conservative_bytes": "oom_risk",
    "usable_bytes": "oom_risk",
    "allocated": "max_memory_bytes",
    "reserved": "max_memory_bytes",
    "device": "max_memory_bytes",
    "binding": "max_memory_bytes",
    "breakdown_bytes": "max_memory_bytes",
    "per_stage": "max_memory_bytes",
    "phases": "max_memory_bytes",
    "host_bytes": "max_host_memory_bytes",
    "host_usable_bytes": "max_host_memory_bytes",
}


def test_every_prediction_has_a_limit() -> None:
    assert set(OF_TIME) == set(TimePrediction.model_fields)
    assert set(OF_MEMORY) == set(MemoryPrediction.model_fields)
    assert {*OF_TIME.values(), *OF_MEMORY.values()} <= {*LIMITS, "oom_risk"}


def test_every_limit_reaches_the_solver() -> None:
    assert set(LIMITS) == {*SIDE, "max_gpus", "min_gpus"} == set(Limits.__dataclass_fields__)
    assert set(LIMITS) <= set(Constraints.model_fields)
