"""A simulated site: plans, and runs of them as constants of its own would make them."""

import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from cost_models.calibration import Calibration
from cost_models.catalog import calibration
from planner.fitting.site_runs import RunPlan, SiteRun, foretold
from planner.request import PlanRequest
from planner.resolve import resolve

BEGUN = datetime(2026, 11, 1, tzinfo=UTC)
Change = Callable[[int, dict[str, Any]], dict[str, Any]]
"""Spoils the figures of run number n."""


@cache
def plans(device: str = "a100-sxm-80gb", backend: str = "fsdp") -> tuple[RunPlan, ...]:
    """Twelve configurations of a small Llama without runs."""
    found = []
    for index in range(12):
        micro, recompute = (1, 2, 4)[index % 3], ("none", "full")[index // 3 % 2]
        request = {
            "model": {"architecture": {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
                                       "intermediate_size": 8192, "vocab_size": 32000}},
            "cluster": {"pools": [{"device": device, "gpus_per_node": 8}]},
            "training": {"sequence_length": 2048 * (1 + index // 6), "global_batch_size": 64},
            "configuration": {"backend": backend, "zero_stage": 3, "micro_batch_size": micro, "recompute": recompute},
        }  # fmt: skip
        resolved = resolve(PlanRequest.read(request))
        assert resolved.configuration is not None
        found.append(RunPlan(question=resolved.question, configuration=resolved.configuration, runs=()))
    return tuple(found)


def reported(
    count: int,
    *,
    slower: float = 1.0,
    noise: float = 0.02,
    truth: Calibration | None = None,
    spoil: Change | None = None,
    seed: int = 0,
    known: Sequence[RunPlan] | None = None,
    first: int = 0,
) -> list[RunPlan]:
    """`count` runs, one plan after the other, an hour apart from run number `first` on."""
    chance = random.Random(seed)
    those = list(plans() if known is None else known)
    runs: list[list[SiteRun]] = [[] for _ in those]
    for number in range(first, first + count):
        at = number % len(those)
        said = foretold(those[at].question, those[at].configuration, truth or calibration())
        figures: dict[str, Any] = {
            "step_seconds": said.values["step_seconds"] * slower * chance.lognormvariate(0, noise),
            "peak_allocated_bytes": round(said.values["peak_allocated_bytes"] * chance.lognormvariate(0, noise / 4)),
        }
        figures = figures if spoil is None else spoil(number, figures)
        made = {"ref": f"run-{number:03d}", "at": BEGUN + timedelta(hours=number), "outcome": "ok", **figures}
        runs[at].append(SiteRun.model_validate(made))
    return [plan.model_copy(update={"runs": tuple(own)}) for plan, own in zip(those, runs, strict=True)]


def together(*parts: Sequence[RunPlan]) -> list[RunPlan]:
    """Runs of the same plans, one after the other."""
    return [
        plans[0].model_copy(update={"runs": tuple(run for plan in plans for run in plan.runs)})
        for plans in zip(*parts, strict=True)
    ]
