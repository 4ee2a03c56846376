"""What a request leaves open and its framework decides: the memory under every value that the framework may take.

One number for an input that nobody stated would be a guess; the answer carries the scenarios and their spread.
"""

from collections.abc import Mapping
from typing import Any, Final

from cost_models.calibration import Calibration
from cost_models.job import Job
from cost_models.memory import memory_ledger
from cost_models.specs.choices import ATTENTIONS
from cost_models.specs.configuration import Configuration
from planner.plan import Assumption
from planner.prediction import rounded, verdict

OPEN_INPUTS: Final = ("configuration.attention", "configuration.cross_entropy", "training.state_precision")
"""Inputs with scenarios, by the key under which an assumption names them."""
_DIGITS: Final = 6


def with_scenarios(
    assumptions: tuple[Assumption, ...],
    job: Job,
    configuration: Configuration,
    calibration: Calibration,
    *,
    oom_risk: float,
) -> tuple[Assumption, ...]:
    """The assumptions, with scenarios and their spread where the input decides memory.

    `spread` is the relative distance between the largest and the smallest median of the device's memory.
    """
    found = []
    open_inputs = {assumption.key: assumption for assumption in (*assumptions, *_layout(job, configuration))}
    for key, assumption in open_inputs.items():
        variants = _variants(key, job, configuration) if key in OPEN_INPUTS else {}
        if len(variants) > 1:
            priced = [_priced(name, *variant, calibration, oom_risk) for name, variant in variants.items()]
            sizes = [entry["device_bytes"] for entry in priced]
            spread = rounded(max(sizes) / min(sizes) - 1.0, _DIGITS)
            found.append(assumption.model_copy(update={"scenarios": tuple(priced), "spread": spread}))
        else:
            found.append(assumption)
    return tuple(found)


def _layout(job: Job, configuration: Configuration) -> tuple[Assumption, ...]:
    """The optimizer's layout, open where a 16-bit precision may keep an fp32 copy or none."""
    open_layout = job.training.state_precision == "auto" and job.training.method == "full"
    if not open_layout or configuration.precision not in {"bf16", "fp16"}:
        return ()
    return (Assumption(key="training.state_precision", value="auto", from_=_release(configuration)),)


def _release(configuration: Configuration) -> str:
    return f"{configuration.backend.name}@{configuration.backend.release_range}"


def _variants(key: str, job: Job, configuration: Configuration) -> Mapping[str, tuple[Job, Configuration]]:
    """The job and configuration under every value of an open input."""
    if key == "training.state_precision":
        from dataclasses import replace

        return {
            layout: (replace(job, training=job.training.model_copy(update={"state_precision": layout})), configuration)
            for layout in ("mixed", "pure")
        }
    megatron = configuration.backend.name.startswith("megatron")
    name = key.removeprefix("configuration.")
    values: tuple[str, ...] = ("vocab_parallel", "fused") if megatron else ("eager", "fused")
    if name == "attention":
        values = ("flash", "eager") if megatron else ATTENTIONS
    return {value: (job, configuration.model_copy(update={name: value})) for value in values}


def _priced(
    name: str, job: Job, configuration: Configuration, calibration: Calibration, oom_risk: float
) -> dict[str, Any]:
    ledger = memory_ledger(job, configuration, calibration, oom_risk=oom_risk)
    return {"value": name, "device_bytes": round(ledger.device_bytes), "verdict": verdict(ledger)}
