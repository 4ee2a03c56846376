"""The DeepSpeed configuration of a plan: as exported, adapted to what runs it here, with each change said."""

import json
from typing import Any

from executor.errors import PlanRefused
from planner.plan import Plan

EXPORTED_FILE = "ds_config.json"


def exported(plan: Plan) -> dict[str, Any]:
    """The configuration that `meshwright export --to deepspeed` writes.

    Raises:
        ExportUnsupported: DeepSpeed cannot express the plan.
    """
    from planner.exporters import render

    texts = {artifact.path: artifact.text for artifact in render(plan, "deepspeed")}
    config: dict[str, Any] = json.loads(texts[EXPORTED_FILE])
    return config


def adapted_to_cpu(config: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What DeepSpeed's CPU accelerator can run of `config`, and the changes made.

    Raises:
        PlanRefused: fp16 or ZeRO++, which DeepSpeed does not run on CPUs.
    """
    if config.get("fp16", {}).get("enabled") is True:
        raise PlanRefused("the plan's precision is fp16, which DeepSpeed does not run on a CPU; plan bf16 or fp32")
    zero = config.get("zero_optimization", {})
    if zero.get("zero_quantized_gradients") or zero.get("zero_quantized_weights"):
        raise PlanRefused(
            "the plan's gradient_compression int8 is DeepSpeed's ZeRO++, whose kernels DeepSpeed has for GPUs alone; "
            "on a CPU plan int8 for the back end ddp"
        )
    changes = []
    result = json.loads(json.dumps(config))
    optimizer = result.get("optimizer", {})
    if optimizer.get("type", "").lower() in {"adam", "adamw"}:
        # The fused kernels would be compiled for minutes on first use; torch's own do the same arithmetic.
        # Fused, as it then holds no temporaries of the size of the parameters, no more than DeepSpeed's does.
        optimizer.setdefault("params", {}).update({"torch_adam": True, "fused": True})
        if "offload_optimizer" in result.get("zero_optimization", {}):
            result["zero_force_ds_cpu_optimizer"] = False
        changes.append("AdamW runs as torch.optim.AdamW instead of DeepSpeed's fused kernel")
    for key in ("offload_optimizer", "offload_param"):
        section = result.get("zero_optimization", {}).get(key)
        if isinstance(section, dict) and section.get("pin_memory"):
            section["pin_memory"] = False
            changes.append(f"{key} without pinned memory, which a CPU node has no use for")
    return result, tuple(changes)
