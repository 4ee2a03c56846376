"""Plans with fixed figures, made without a solver or a calibration, so that texts made of them do not move."""

from datetime import UTC, datetime
from typing import Any

from cost_models.specs.configuration import Configuration
from planner.constraints import Constraints
from planner.plan import (
    Alternative,
    Assumption,
    Binding,
    Conflict,
    Envelope,
    Explanation,
    Infeasibility,
    MemoryPrediction,
    NearestMiss,
    Optimality,
    Plan,
    Prediction,
    Provenance,
    Quantity,
    Recommendations,
    Relaxation,
    StagePrediction,
    TimePrediction,
)
from planner.question import Question

GIB = 2**30


def configuration(**changes: Any) -> Configuration:
    """Eight GPUs, ZeRO-2, 32 layers of which 12 are recomputed."""
    values: dict[str, Any] = {
        "backend": {"name": "deepspeed", "release_range": ">=0.16.4,<0.20"},
        "data_parallel": 8,
        "zero_stage": 2,
        "micro_batch_size": 2,
        "gradient_accumulation_steps": 8,
        "stages": [{"layers": 32, "recompute": {"none": 20, "full": 12}}],
        "attention": "sdpa",
    }
    return Configuration.model_validate(values | changes)


def pipeline(depth: int, **changes: Any) -> Configuration:
    """Even stages without recompute over as many GPUs."""
    even = [{"layers": 32 // depth, "recompute": {"none": 32 // depth}}] * depth
    shape = {"pipeline_parallel": depth, "data_parallel": 8 // depth, "zero_stage": 1, "stages": even}
    return configuration(**(shape | changes))


def _around(median: float) -> Quantity:
    return Quantity(
        median_bytes=int(median * GIB), lower_bytes=int(median * 0.95 * GIB), upper_bytes=int(median * 1.05 * GIB)
    )


def memory(allocated: float = 40.0, usable: float = 79.0, verdict: Any = "fits") -> MemoryPrediction:
    """One stage whose loss instant is fullest. [GiB]"""
    size = int(allocated * GIB)
    terms = {"weights": size // 2, "activations": size - size // 2}
    stage = StagePrediction(
        stage=0,
        instant="loss",
        allocated_bytes=size,
        instants_bytes={"load": {"weights": size // 2}, "loss": terms},
        host_bytes=12 * GIB,
    )
    return MemoryPrediction(
        verdict=verdict,
        oom_probability=0.002 if verdict == "fits" else 0.9,
        allocated=_around(allocated),
        reserved=_around(allocated * 1.05),
        device=_around(allocated * 1.05 + 1),
        conservative_bytes=_around(allocated * 1.05 + 1).upper_bytes,
        usable_bytes=int(usable * GIB),
        binding=Binding(stage=0, phase="step", instant="loss"),
        breakdown_bytes=terms,
        per_stage=(stage,),
        phases={"load": size // 2, "step": size},
        host_bytes=100 * GIB,
        host_usable_bytes=950 * GIB,
    )


def prediction() -> Prediction:
    """Ten seconds a step."""
    return Prediction(
        memory=memory(),
        time=TimePrediction(
            step_seconds=10.0,
            interval_seconds={"80": (8.0, 12.5), "90": (7.5, 13.3)},
            breakdown_seconds={"compute": 7.0, "attention": 2.0, "data_parallel": 0.95, "fixed": 0.05},
            hidden_seconds={"data_parallel": 0.5},
            tokens_per_second_per_gpu=6553.6,
            samples_per_second=12.8,
            mfu=0.5,
            communication_fraction=0.095,
        ),
    )


def plan(chosen: Configuration | None = None, **changes: Any) -> Plan:
    """A proven plan."""
    chosen = chosen or configuration()
    rival = configuration(zero_stage=3)
    values: dict[str, Any] = {
        "status": "optimal",
        "configuration": chosen,
        "prediction": prediction(),
        "optimality": Optimality(
            objective=("throughput",),
            value=10.0,
            bound=10.0,
            gap=0.0,
            proven=True,
            candidates={"raw": 1000, "legal": 100, "priced": 90, "bounded": 9, "solved": 1},
            certificate={
                "unit": "seconds per step",
                "dropped": [
                    {"backend": "deepspeed", "rule": "x", "reason": "a reason", "source": "s", "candidates": 900}
                ],
            },
        ),
        "assumptions": (Assumption(key="training.precision", value="bf16", from_="device a100-sxm-80gb"),),
        "explanation": (
            Explanation(kind="binding", subject="gpu_memory", text="memory peaks in stage 0 at loss"),
            Explanation(kind="choice", subject="zero_stage", text="zero_stage 2 rather than 1: saves 10.00 GiB"),
            Explanation(kind="runner_up", subject="deepspeed dp8 zero3", text="its step takes 10.4 s"),
        ),
        "warnings": ("no measurement of this device stands behind this prediction",),
        "alternatives": (
            Alternative(
                configuration=rival,
                value=10.4,
                step_seconds=10.4,
                conservative_bytes=30 * GIB,
                world_size=8,
                within_noise=True,
            ),
        ),
        "recommendations": Recommendations(
            learning_rate_scale=1.0,
            warmup_steps=2000,
            environment={
                "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
            },
        ),
        "request": question(),
        "provenance": provenance(),
        "envelope": envelope(),
    }
    return Plan.model_validate(values | changes)


def infeasible() -> Plan:
    """No plan: 21 GiB short."""
    return plan(
        status="infeasible",
        configuration=None,
        prediction=None,
        optimality=None,
        explanation=(),
        alternatives=(),
        recommendations=None,
        infeasibility=Infeasibility(
            conflict=(
                Conflict(
                    resource="gpu_memory",
                    text="short of 21.00 GiB per GPU",
                    shortfall_bytes=21 * GIB,
                    phase_shortfall_bytes={"step": 21 * GIB},
                ),
            ),
            nearest_miss=NearestMiss(
                configuration=configuration(zero_stage=3), memory=memory(95.0, 79.0, "does_not_fit")
            ),
            relaxations=(
                Relaxation(change="16 GPUs (2 nodes)", verified=True, text="deepspeed dp16 zero3", step_seconds=7.5),
                Relaxation(change="sequence_length 512", verified=False, text="not enough, nor less of it"),
            ),
        ),
    )


def question(nodes: int = 1, gpus_per_node: int = 8) -> Question:
    """A model of 7B parameters on A100s, with fixed figures."""
    device = {
        "name": "a100-sxm-80gb",
        "family": "a100",
        "marketing_memory_bytes": 80 * 10**9,
        "total_memory_bytes": 80 * GIB,
        "usable_memory_bytes": 79 * GIB,
        "memory_bandwidth": 2e12,
        "peak_flops": {"bf16": 312e12},
        "pcie_bandwidth": 32e9,
        "link": "nvlink",
        "link_bandwidth": 300e9,
        "inter_node_bandwidth": 25e9,
        "host_memory_bytes": 1000 * GIB,
        "source": "a test",
    }
    pool = {
        "device": device,
        "nodes": nodes,
        "gpus_per_node": gpus_per_node,
        "intra_node_link": {"name": "nvlink", "bandwidth": 300e9},
        "inter_node_link": {"name": "infiniband", "bandwidth": 25e9},
        "link_domain": 8,
        "host_memory_bytes": 1000 * GIB,
    }
    model = {
        "name": "a-model",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "head_dim": 128,
        "intermediate_size": 11008,
        "vocab_size": 32000,
    }
    return Question.model_validate(
        {
            "model": model,
            "cluster": {"pools": [pool]},
            "training": {"sequence_length": 4096, "global_batch_size": 128, "precision": "bf16"},
            "backends": ["deepspeed"],
            "objective": ["throughput"],
            "objective_tolerance": 0.0,
            "constraints": Constraints().written_out(),
            "configuration": None,
        }
    )


def provenance() -> Provenance:
    """Fixed hashes."""
    return Provenance(
        meshwright="0.1.0",
        calibration="1#abc",
        catalogue="c" * 64,
        legality="d" * 64,
        ortools="9.15",
        request_hash="e" * 64,
        class_="known_stack",
    )


def envelope() -> Envelope:
    """A fixed time and place."""
    return Envelope(
        id="00000000-0000-4000-8000-000000000000",
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        solve_seconds=0.5,
        host="node-0",
    )
