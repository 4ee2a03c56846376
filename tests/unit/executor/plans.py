"""Small plans, made without a solver."""

from datetime import UTC, datetime
from functools import cache
from typing import Any

from cost_models.specs.configuration import Configuration
from planner.plan import (
    Binding,
    Conflict,
    Envelope,
    Infeasibility,
    MemoryPrediction,
    Plan,
    Prediction,
    Provenance,
    Quantity,
    TimePrediction,
)
from planner.question import Question
from planner.request import PlanRequest
from planner.resolve import resolve


def configuration(**changes: Any) -> Configuration:
    """Two data-parallel processes, ZeRO-2, two layers."""
    values: dict[str, Any] = {
        "backend": {"name": "deepspeed"},
        "data_parallel": 2,
        "zero_stage": 2,
        "micro_batch_size": 2,
        "stages": [{"layers": 2, "recompute": {"none": 2}}],
        "attention": "sdpa",
    }
    return Configuration.model_validate(values | changes)


def prediction(*, step_seconds: float = 1.0, allocated_bytes: int = 1000) -> Prediction:
    """Intervals of +-10 %."""
    size = Quantity(
        median_bytes=allocated_bytes, lower_bytes=allocated_bytes * 9 // 10, upper_bytes=allocated_bytes * 11 // 10
    )
    interval = (0.9 * step_seconds, 1.1 * step_seconds)
    return Prediction(
        memory=MemoryPrediction(
            verdict="fits",
            oom_probability=0.001,
            allocated=size,
            reserved=size,
            device=size,
            conservative_bytes=size.upper_bytes,
            usable_bytes=2**33,
            binding=Binding(stage=0, phase="step", instant="loss"),
            breakdown_bytes={"weights": allocated_bytes},
            per_stage=(),
            phases={"step": allocated_bytes},
            host_bytes=0,
            host_usable_bytes=2**34,
        ),
        time=TimePrediction(
            step_seconds=step_seconds,
            interval_seconds={"80": interval, "90": interval},
            breakdown_seconds={"compute": step_seconds},
            hidden_seconds={},
            tokens_per_second_per_gpu=1.0,
            samples_per_second=1.0,
            mfu=0.5,
            communication_fraction=0.1,
        ),
    )


@cache
def question(device: str = "cpu", gpus: int = 2) -> Question:
    """A tiny Llama on one node."""
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    request = {
        "model": {"architecture": {**sizes, "vocab_size": 256}},
        "cluster": {"pools": [{"device": device, "gpus_per_node": gpus}]},
        "training": {"sequence_length": 32, "global_batch_size": 2 * gpus},
    }
    return resolve(PlanRequest.read(request)).question


def _plan(**changes: Any) -> Plan:
    values: dict[str, Any] = {
        "status": "optimal",
        "configuration": configuration(),
        "prediction": prediction(),
        "optimality": None,
        "request": question(),
        "provenance": Provenance(
            meshwright="0", calibration="c", catalogue="d", legality="l", ortools="o", request_hash="r", class_="unseen"
        ),
        "envelope": Envelope(id="plan-1", created_at=datetime(2026, 1, 1, tzinfo=UTC), solve_seconds=0.0, host="h"),
    }
    return Plan(**(values | changes))


def feasible(**changes: Any) -> Plan:
    """A plan with a configuration and a prediction."""
    return _plan(**changes)


def infeasible() -> Plan:
    """A plan that says nothing fits."""
    conflict = Conflict(resource="gpu_memory", text="12.00 GiB short per GPU")
    return _plan(
        status="infeasible", configuration=None, prediction=None, infeasibility=Infeasibility(conflict=(conflict,))
    )
