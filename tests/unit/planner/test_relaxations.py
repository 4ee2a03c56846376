"""Relaxations: what is printed works when a person applies it, and one step less does not."""

import copy
import random
from decimal import Context, Decimal
from typing import Any

import pytest

from cost_models.errors import BrokenRule
from cost_models.specs.configuration import Configuration
from planner.applying import POOL
from planner.cli import asked
from planner.plan import Infeasibility, Relaxation
from planner.planning import plan
from planner.request import PlanRequest
from tests.scale import scaled

DEVICES = ("rtx-4090", "a100-sxm-40gb", "v100-sxm-32gb")
WISHES: tuple[dict[str, Any], ...] = (
    {"offload": "forbid"},
    {"offload": "forbid", "recompute": "none"},
    {"max_step_seconds": 0.05},
    {"max_memory_bytes": "1GiB"},
    {"max_memory_bytes": "2GiB", "max_step_seconds": 1.0},
    {"min_tokens_per_second": 1e6},
    {"zero_stage": 0, "optimizer_offload": False, "parameter_offload": False},
)


def request_of(seed: int) -> dict[str, Any]:
    rng = random.Random(seed)
    hidden = rng.choice([2048, 4096, 8192])
    numbers = {"hidden_size": hidden, "num_hidden_layers": rng.choice([16, 32]), "num_attention_heads": 32}
    return {
        "model": {"architecture": numbers | {"intermediate_size": 3 * hidden, "vocab_size": 32000}},
        "cluster": {
            "pools": [{"device": rng.choice(DEVICES), "gpus_per_node": rng.choice([1, 2]), "host_memory": "96GiB"}]
        },
        "training": {"sequence_length": rng.choice([2048, 16384]), "global_batch_size": rng.choice([4, 8])},
        "backend": rng.choice(["deepspeed", "megatron", "any"]),
        "constraints": rng.choice(WISHES),
    }


def applied(base: dict[str, Any], settings: tuple[str, ...]) -> PlanRequest:
    """The request with settings as the command line takes them."""
    data = copy.deepcopy(base)
    for item in settings:
        asked._set(data, item, "constraints")
    return asked.read_request(data)


def planned(request: PlanRequest) -> Configuration | None:
    """The best configuration; none where the request itself breaks a rule, as a batch that nothing divides."""
    try:
        return plan(request).configuration
    except BrokenRule:
        return None


def infeasibility(seed: int) -> Infeasibility | None:
    return plan(PlanRequest.read(request_of(seed))).infeasibility


def before(change: Relaxation) -> tuple[str, ...] | None:
    """The settings one step short of a single number that was moved; None of other changes."""
    if len(change.settings) != 1 or "one step less" not in change.text:
        return None
    key, value = change.settings[0].split("=")
    if key == "training.sequence_length":
        return (f"{key}={int(value) + int(change.change.split('in steps of ')[1].rstrip(')'))}",)
    if value.endswith("MiB"):
        return (f"{key}={int(value[:-3]) - 1}MiB",)
    steps = {"training.global_batch_size": 1, f"{POOL}.usable_memory": -(2**30), f"{POOL}.host_memory": -8 * 2**30}
    if key in steps:
        return (f"{key}={int(value) + steps[key]}",)
    if not key.startswith("constraints.m"):
        return None
    figures, found = Context(prec=3), Decimal(value)
    found = figures.next_plus(found) if ".min_" in key else figures.next_minus(found)
    return (f"{key}={float(found)}",)


@pytest.mark.parametrize("seed", range(scaled(5, 150)))
def test_what_is_printed_works_when_it_is_applied(seed: int) -> None:
    found = infeasibility(seed)
    if found is None:
        return
    assert found.conflict
    for change in found.relaxations:
        assert bool(change.settings) == change.verified
        if change.verified:
            answer = plan(applied(request_of(seed), change.settings))
            assert answer.configuration is not None, (change.change, change.settings)
        less = before(change)
        if less is not None:
            assert planned(applied(request_of(seed), less)) is None, (change.change, less)


def test_most_of_these_requests_are_infeasible() -> None:
    assert sum(infeasibility(seed) is not None for seed in range(5)) >= 3
