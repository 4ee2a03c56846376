"""How long odd requests take to a proof: `python -m benchmarks.stress [SEED ...] [--count N]`.

Seeded requests of many kinds: any preset, 1 to 1024 devices of any kind and not only powers of two, long sequences,
small and large batches, limits, objectives. Prints processor seconds, status and candidates of each, the slowest last.
"""

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from cost_models import catalog
from cost_models.errors import MeshwrightError
from planner import calibrations
from planner.problem import problem_of
from planner.request import PlanRequest
from planner.resolve import resolve
from solver.search import solve

COUNT = 30
NODES = (1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 18, 20, 24, 28, 32, 36, 48, 60, 64, 96, 100, 128)
LENGTHS = (512, 1024, 2048, 3000, 4096, 8192, 16_384, 32_768, 65_536, 131_072)
BATCHES = (1, 7, 16, 48, 60, 64, 96, 128, 240, 256, 360, 512, 720, 1000, 1024, 1536, 2048, 4096)
OBJECTIVES: tuple[Any, ...] = (
    *["throughput"] * 6, "memory", "gpus", "cost", "cost_per_token", "energy", ["throughput", "memory"],
    ["memory", "throughput"], ["gpus", "throughput"],
)  # fmt: skip
CONSTRAINTS: tuple[dict[str, Any], ...] = (
    *[{}] * 5, {"offload": "forbid"}, {"gradient_compression": "lossy"}, {"zero_stage": [0, 1]}, {"zero_stage": 3},
    {"max_step_seconds": 60}, {"max_memory_bytes": "40GiB"}, {"tensor_parallel": [1, 2, 4, 8]}, {"max_gpus": 64},
    {"min_tokens_per_second_per_gpu": 300}, {"recompute": "full"}, {"pipeline_parallel": {"max": 16}},
)  # fmt: skip


def drawn(seed: int) -> dict[str, Any]:
    """One request of many kinds."""
    draw = np.random.default_rng(seed)

    def one(values: Sequence[Any]) -> Any:
        return values[int(draw.integers(len(values)))]

    device = one([device for device in catalog.devices() if device.kind != "cpu"])
    pool = {"device": device.name, "nodes": one(NODES), "price_per_gpu_hour": 2.0}
    if draw.random() < 0.3:
        pool["gpus_per_node"] = one((1, 2, 3, 4, 6, 8))
    size = one(BATCHES)
    training = {
        "method": one(["full"] * 8 + ["lora", "qlora"]),
        "sequence_length": one(LENGTHS),
        "global_batch_size": size if draw.random() < 0.7 else {"min": size, "max": size + size // 8},
        "optimizer": one(["adamw"] * 5 + ["adamw-8bit", "adafactor", "sgd", "muon"]),
        "precision": one(["auto", "auto", "auto", "bf16"]),
    }
    return {
        "model": {"preset": one(catalog.models())},
        "cluster": {"pools": [pool]},
        "training": training,
        "backend": one(["any"] * 6 + ["megatron", "deepspeed", "fsdp"]),
        "objective": one(OBJECTIVES),
        "constraints": one(CONSTRAINTS),
    }


def described(request: dict[str, Any]) -> str:
    """A request in one line."""
    pool, training = request["cluster"]["pools"][0], request["training"]
    batch, objective = training["global_batch_size"], request["objective"]
    limits = " ".join(f"{key}={value}" for key, value in request["constraints"].items())
    return (
        f"{request['model']['preset']} on {pool['nodes']} x {pool.get('gpus_per_node', '')} {pool['device']}, "
        f"{training['sequence_length']} tokens x {batch if isinstance(batch, int) else tuple(batch.values())}, "
        f"{training['method']} {training['optimizer']} {request['backend']} "
        f"{objective if isinstance(objective, str) else '+'.join(objective)} {limits}"
    )


def measured(seed: int) -> float:
    """One request, solved and printed; processor seconds."""
    request = drawn(seed)
    try:
        asked = problem_of(resolve(PlanRequest.model_validate(request)), calibrations.current())
        started = time.process_time()
        answer = solve(asked)
    except MeshwrightError as refused:
        print(f"{seed:4}       - refused     {described(request)}: {refused}", flush=True)
        return 0.0
    seconds, c = time.process_time() - started, answer.candidates
    digest = "-" * 8
    if answer.configuration is not None:
        chosen = json.dumps([answer.configuration.model_dump(mode="json"), answer.value], default=str, sort_keys=True)
        digest = hashlib.sha256(chosen.encode()).hexdigest()[:8]
    counts = f"{c.legal:8} {c.priced:7} {c.bounded:6} {c.solved:5}"
    print(f"{seed:4} {seconds:7.2f} {answer.status:10} {counts} {digest}  {described(request)}", flush=True)
    return seconds


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("seeds", nargs="*", type=int)
    parser.add_argument("--count", type=int, default=COUNT)
    asked = parser.parse_args(arguments)
    print(f"seed   cpu s {'status':10} {'legal':>8} {'priced':>7} {'bound':>6} {'CP':>5} {'answer':8}  request")
    seconds = {seed: measured(seed) for seed in asked.seeds or range(asked.count)}
    worst = max(seconds, key=lambda seed: seconds[seed])
    print(f"median {np.median(list(seconds.values())):.2f} s, slowest {seconds[worst]:.2f} s (seed {worst})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
