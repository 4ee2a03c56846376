"""DeepSpeed: `ds_config.json`, what the training script must set on the model itself, and the command."""

import json
from typing import Any, Final

from packaging.specifiers import SpecifierSet

from cost_models.job import Job
from cost_models.memory.buffers import buffer_sizes
from cost_models.specs.choices import NARROW
from cost_models.specs.configuration import Configuration
from planner.exporters.base import Artifact, ExportOptions, header, job_losses
from planner.exporters.launch import launch_script
from planner.plan import Plan

_OPTIMIZERS: Final = {"adamw": "AdamW", "lion": "Lion", "muon": "Muon", "sgd": "SGD", "adafactor": "Adafactor"}
"""The spellings that deepspeed.initialize builds itself: its own, else the class of torch.optim of that name."""
_UNTESTED: Final = frozenset({"sgd", "adafactor", "adamw-8bit"})
"""Optimizers that ZeRO only takes with `zero_allow_untested_optimizer`."""
_COMPRESSED_DTYPE: Final = {"fp16": "fp16", "bf16": "bfp16"}
"""`communication_data_type` as deepspeed/runtime/config.py spells it."""


_MOMENTUM: Final = 0.9
"""Of SGD, whose momentum buffer the memory ledger counts; torch's own default is none. Megatron-LM's default."""


class DeepSpeedExporter:
    """Keys: deepspeed/runtime/{config,zero/config,tensor_parallel/config}.py of these releases."""

    name = "deepspeed"
    versions = SpecifierSet(">=0.16,<0.20")

    def unsupported(self, plan: Plan) -> tuple[str, ...]:
        """What ds_config.json cannot say of this plan."""
        assert plan.configuration is not None
        c = plan.configuration
        losses = job_losses(plan)
        if c.backend.name != "deepspeed":
            losses.append(f"the plan is for backend {c.backend.name}, its prices and rules are not DeepSpeed's")
        if c.virtual_pipeline_stages > 1:
            losses.append(
                f"virtual_pipeline_stages {c.virtual_pipeline_stages}: PipelineModule has no interleaved schedule"
            )
        if c.pipeline_parallel > 1 and c.zero_stage > 1:
            losses.append(
                f"zero_stage {c.zero_stage} with pipeline_parallel {c.pipeline_parallel}: PipelineEngine takes 0 or 1"
            )
        ratio = _offload_ratio(c)
        if 0 < ratio < 1 and c.zero_stage != 3:
            losses.append(
                f"{ratio:.0%} of the optimizer states offloaded: offload_optimizer.ratio works under ZeRO-3 only"
            )
        if c.optimizer == "1-bit-adam":
            losses.append("optimizer 1-bit-adam: removed from DeepSpeed before 0.19")
        if c.gradient_compression in ("powersgd", "one-bit", "top-k"):
            losses.append(f"gradient_compression {c.gradient_compression}: no such key")
        if c.precision in NARROW:
            losses.append(f"precision {c.precision}: the model's own kernels decide it, no key of ds_config.json does")
        return tuple(losses)

    def export(self, plan: Plan, options: ExportOptions) -> tuple[Artifact, ...]:
        """ds_config.json, model_settings.json and launch.sh."""
        assert plan.configuration is not None
        losses = self.unsupported(plan)
        about = header(plan, self.name) | {"valid_for": f"deepspeed {self.versions}"}
        config: dict[str, Any] = {"_meshwright": about | ({"lost": list(losses)} if losses else {})}
        config |= ds_config(plan.request.job, plan.configuration, options)
        notes = _notes(plan.configuration, options, losses)
        settings = {"_meshwright": about} | model_settings(plan.configuration)
        return (
            Artifact(path="ds_config.json", media_type="application/json", text=_json(config)),
            Artifact(path="model_settings.json", media_type="application/json", text=_json(settings)),
            launch_script(plan, self.name, options, ["--deepspeed ds_config.json"], notes),
        )


def _json(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"


def _offload_ratio(c: Configuration) -> float:
    layers = sum(stage.layers for stage in c.stages)
    return sum(stage.optimizer_layers_offloaded for stage in c.stages) / layers


def ds_config(job: Job, c: Configuration, options: ExportOptions) -> dict[str, Any]:
    """The configuration as deepspeed.initialize takes it; nothing decided is left as "auto"."""
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": c.micro_batch_size,
        "gradient_accumulation_steps": c.gradient_accumulation_steps,
    }
    if c.tensor_parallel == 1:
        # With tensor parallelism DeepSpeed checks train_batch_size against the whole world: leave it to derive it.
        config = {"train_batch_size": c.global_batch_size, **config}
    else:
        config["tensor_parallel"] = {"autotp_size": c.tensor_parallel}
    if c.context_parallel > 1:
        config["sequence_parallel_size"] = c.context_parallel
    if c.pipeline_parallel > 1:
        interval = c.stages[0].recompute.interval if any(s.recompute.full for s in c.stages) else 0
        config["pipeline"] = {"stages": c.pipeline_parallel, "activation_checkpoint_interval": interval}
    if c.precision in ("bf16", "fp16"):
        config[c.precision] = {"enabled": True}
    # The default is a norm of 1 in some of these releases and none in others.
    config["gradient_clipping"] = 0.0
    config |= _optimizer(c, options)
    config["zero_optimization"] = _zero(job, c)
    if c.gradient_compression in _COMPRESSED_DTYPE:
        config["communication_data_type"] = _COMPRESSED_DTYPE[c.gradient_compression]
    if c.activation_offload:
        config["activation_checkpointing"] = {"cpu_checkpointing": True}
    return config


def _optimizer(c: Configuration, options: ExportOptions) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if c.optimizer in _OPTIMIZERS:
        parameters: dict[str, Any] = {} if options.learning_rate is None else {"lr": options.learning_rate}
        if c.optimizer == "sgd":
            parameters["momentum"] = _MOMENTUM
        out["optimizer"] = {"type": _OPTIMIZERS[c.optimizer], "params": parameters}
    if c.optimizer in _UNTESTED and c.zero_stage > 0:
        out["zero_allow_untested_optimizer"] = True
    return out


def _zero(job: Job, c: Configuration) -> dict[str, Any]:
    """The buffer sizes are those that the memory ledger counted: DeepSpeed allocates what is stated, used or not."""
    zero: dict[str, Any] = {"stage": c.zero_stage}
    if c.zero_stage == 0:
        return zero
    sizes = buffer_sizes(job, c)
    zero |= {
        "contiguous_gradients": True,
        "overlap_comm": c.communication_overlap,
        "reduce_bucket_size": sizes.bucket,
    }
    if c.zero_stage < 3:
        zero["allgather_bucket_size"] = sizes.bucket
    else:
        zero |= {
            "stage3_max_live_parameters": sizes.live,
            "stage3_max_reuse_distance": sizes.live,
            "stage3_prefetch_bucket_size": sizes.prefetch,
            "stage3_param_persistence_threshold": sizes.persistent,
        }
    ratio = _offload_ratio(c)
    if ratio > 0:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
        if ratio < 1 and c.zero_stage == 3:
            zero["offload_optimizer"]["ratio"] = ratio
    if c.parameter_offload:
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    if c.gradient_compression == "int8":
        zero["zero_quantized_gradients"] = True
    return zero


def model_settings(c: Configuration) -> dict[str, Any]:
    """What no key of ds_config.json says: the training script sets it on the model before deepspeed.initialize."""
    recompute, first = [], 0
    for stage in c.stages:
        counts = stage.recompute
        recompute.append(
            {
                "layers": [first, first + stage.layers],
                "full": [first, first + counts.full],
                "selective": [first + counts.full, first + counts.full + counts.selective],
                "interval": counts.interval,
            }
        )
        first += stage.layers
    settings: dict[str, Any] = {
        "attn_implementation": {"flash": "flash_attention_2"}.get(c.attention, c.attention),
        "cross_entropy": c.cross_entropy,
        "fused_kernels": c.fused_kernels,
        "torch_compile": c.compile,
        "optimizer": c.optimizer,
        "recompute_stages": recompute,
    }
    if c.expert_parallel > 1:
        settings["expert_parallel_size"] = c.expert_parallel
    if c.lora is not None:
        settings["lora"] = c.lora.model_dump(mode="json")
    return settings


def _notes(c: Configuration, options: ExportOptions, losses: tuple[str, ...]) -> tuple[str, ...]:
    notes = [f"not expressed: {loss}" for loss in losses]
    if options.learning_rate is None and c.optimizer in _OPTIMIZERS:
        notes.append("optimizer.params states no learning rate, DeepSpeed's own default would apply: set params.lr")
    notes.append("gradient_clipping is 0, none: state the norm that you clip at")
    if any(stage.recompute.full or stage.recompute.selective for stage in c.stages):
        notes.append(
            "the script recomputes activations in the layers that model_settings.json lists (half-open ranges)"
        )
    if c.tensor_parallel > 1:
        notes.append(f"the {c.tensor_parallel} ranks of a tensor-parallel group must read the same batch")
    if c.pipeline_parallel > 1:
        layers = ", ".join(str(stage.layers) for stage in c.stages)
        notes.append(f"the script builds PipelineModule with {c.pipeline_parallel} stages of {layers} layers")
    if c.optimizer not in _OPTIMIZERS:
        notes.append(f"the script passes the optimizer ({c.optimizer}) to deepspeed.initialize")
    return tuple(notes)
