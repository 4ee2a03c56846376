"""Accelerate: `accelerate_config.yaml` for DDP and FSDP2, what the training script must set itself, and the command."""

import json
from typing import Any, Final

import yaml
from packaging.specifiers import SpecifierSet

from cost_models.specs.choices import NARROW
from cost_models.specs.configuration import Configuration
from planner.exporters.base import Artifact, ExportOptions, header, job_losses, shape
from planner.exporters.deepspeed import model_settings
from planner.exporters.launch import comment, environment, shell_script, torchrun
from planner.plan import Plan

CONFIG: Final = "accelerate_config.yaml"
_BACKENDS: Final = ("ddp", "fsdp")
_DTYPES: Final = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


class AccelerateExporter:
    """Keys: accelerate/commands/config/config_args.py and accelerate/commands/launch.py of these releases."""

    name = "accelerate"
    versions = SpecifierSet(">=1.10,<2")
    """1.10 is the first with `parallelism_config` in the file."""

    def unsupported(self, plan: Plan) -> tuple[str, ...]:
        """What neither the file nor an argument of Accelerator says of this plan."""
        assert plan.configuration is not None
        c, losses = plan.configuration, job_losses(plan)
        if c.backend.name not in _BACKENDS:
            losses.append(
                f"the plan is for backend {c.backend.name}, its prices and rules are not those of DDP or FSDP"
            )
        if c.pipeline_parallel > 1:
            losses.append(f"pipeline_parallel {c.pipeline_parallel}: Accelerate trains without a pipeline")
        if c.expert_parallel > 1:
            losses.append(f"expert_parallel {c.expert_parallel}: parallelism_config has no such size")
        if c.tensor_parallel > 1 and c.sequence_parallel:
            losses.append("sequence_parallel: the model's own tp_plan decides it, no key does")
        if c.context_parallel > 1 and c.attention != "sdpa":
            losses.append(f"context_parallel {c.context_parallel} with attention {c.attention}: it needs sdpa")
        if c.cross_entropy == "vocab_parallel":
            losses.append("cross_entropy vocab_parallel: no key says it")
        if c.precision in NARROW:
            losses.append(f"precision {c.precision}: the recipe of its kernels is no part of the plan")
        return tuple(losses + _recompute_losses(c) + _sharding_losses(plan, c))

    def export(self, plan: Plan, options: ExportOptions) -> tuple[Artifact, ...]:
        """accelerate_config.yaml, model_settings.json and launch.sh."""
        assert plan.configuration is not None
        c, losses = plan.configuration, self.unsupported(plan)
        about = header(plan, self.name) | {"valid_for": f"accelerate {self.versions}"}
        notes = [f"not expressed: {loss}" for loss in losses] + _notes(plan, c)
        head = [*comment(about), *(f"# note: {note}" for note in notes)]
        body = yaml.safe_dump(accelerate_config(plan, options), sort_keys=False)
        settings = {"_meshwright": about | ({"lost": list(losses)} if losses else {})} | script_settings(c)
        return (
            Artifact(path=CONFIG, media_type="application/yaml", text="\n".join([*head, body])),
            Artifact(
                path="model_settings.json", media_type="application/json", text=json.dumps(settings, indent=2) + "\n"
            ),
            _launch_script(plan, options, [*comment(about), *(f"# note: {note}" for note in notes)]),
        )


def _fully_recomputed(c: Configuration) -> bool:
    """Every layer, each by itself, is recomputed in full: what one switch says."""
    return all(stage.recompute.full == stage.layers and stage.recompute.interval == 1 for stage in c.stages)


def _recompute_losses(c: Configuration) -> list[str]:
    if not any(stage.recompute.full or stage.recompute.selective for stage in c.stages) or _fully_recomputed(c):
        return []
    full, selective = (sum(getattr(stage.recompute, mode) for stage in c.stages) for mode in ("full", "selective"))
    layers, interval = sum(stage.layers for stage in c.stages), max(stage.recompute.interval for stage in c.stages)
    return [
        f"recompute full in {full} and selective in {selective} of {layers} layers, interval {interval}: "
        "activation checkpointing is in full, of every layer, or not at all"
    ]


def _sharding_losses(plan: Plan, c: Configuration) -> list[str]:
    """What FSDP2, or DDP, as Accelerate runs it, cannot do."""
    losses = []
    offloaded, layers = (sum(getattr(s, n) for s in c.stages) for n in ("optimizer_layers_offloaded", "layers"))
    if c.backend.name == "fsdp":
        if plan.pool.device.kind == "cpu":
            losses.append("FSDP on CPUs: Accelerate shards over accelerators only")
        if c.world_size > 1 and c.data_parallel * c.context_parallel == 1:
            losses.append(f"FSDP over data_parallel 1 x context_parallel 1 beside tensor_parallel {c.tensor_parallel}")
        if offloaded != (layers if c.parameter_offload else 0):
            losses.append(
                f"optimizer states of {offloaded} of {layers} layers offloaded: fsdp_offload_params moves all or none, "
                "with the weights"
            )
    elif offloaded or c.parameter_offload:
        losses.append("offload: DDP has none")
    if c.activation_offload:
        losses.append("activation_offload: the plan's is not that of activation checkpoints alone")
    if c.gradient_compression not in ("none", "bf16", *(("fp16", "powersgd") if c.backend.name == "ddp" else ())):
        losses.append(f"gradient_compression {c.gradient_compression}: Accelerate registers no hook of this name")
    return losses


def accelerate_config(plan: Plan, options: ExportOptions) -> dict[str, Any]:
    """The file as `accelerate launch --config_file` reads it; the sizes multiply to the number of processes."""
    assert plan.configuration is not None
    c, cpu = plan.configuration, plan.pool.device.kind == "cpu"
    nodes, _ = shape(plan, options)
    config: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": _distributed_type(c, cpu),
        "num_machines": nodes,
        "num_processes": c.world_size,
        "mixed_precision": _mixed_precision(plan, c),
        "use_cpu": cpu,
        "dynamo_config": {"dynamo_backend": "INDUCTOR" if c.compile else "NO"},
    }
    if c.backend.name == "fsdp":
        config["fsdp_config"] = _fsdp(plan, c)
        if c.world_size > 1:
            config["parallelism_config"] = {
                "parallelism_config_dp_replicate_size": 1,
                "parallelism_config_dp_shard_size": c.data_parallel,
                "parallelism_config_tp_size": c.tensor_parallel,
                "parallelism_config_cp_size": c.context_parallel,
            }
    return config


def _distributed_type(c: Configuration, cpu: bool) -> str:
    if c.backend.name == "fsdp":
        return "FSDP"
    if c.world_size == 1:
        return "NO"
    return "MULTI_CPU" if cpu else "MULTI_GPU"


def _mixed_precision(plan: Plan, c: Configuration) -> str:
    """A pure 16-bit model needs no autocast, which would keep its weights in fp32."""
    pure = plan.request.training.state_precision == "pure"
    return "no" if c.precision == "fp32" or pure else c.precision


def _fsdp(plan: Plan, c: Configuration) -> dict[str, Any]:
    """FSDP2. The classes to wrap are the model's own `_no_split_modules`, which need no naming."""
    return {
        "fsdp_version": 2,
        "fsdp_reshard_after_forward": c.zero_stage == 3,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_offload_params": c.parameter_offload,
        "fsdp_activation_checkpointing": _fully_recomputed(c),
        "fsdp_cpu_ram_efficient_loading": not plan.request.training.load.startswith("whole"),
        "fsdp_state_dict_type": "FULL_STATE_DICT"
        if plan.request.training.save == "whole_on_device"
        else "SHARDED_STATE_DICT",
    }


def script_settings(c: Configuration) -> dict[str, Any]:
    """What no key of the file says: arguments of the training script, of Accelerator and of the model."""
    settings: dict[str, Any] = {
        "micro_batch_size": c.micro_batch_size,
        "gradient_accumulation_steps": c.gradient_accumulation_steps,
        "global_batch_size": c.global_batch_size,
    }
    if c.backend.name == "fsdp" and c.precision in ("bf16", "fp16"):
        reduce = c.gradient_compression if c.gradient_compression in _DTYPES else "fp32"
        settings["mixed_precision_policy"] = {
            "param_dtype": _DTYPES[c.precision],
            "reduce_dtype": _DTYPES[reduce],
            "output_dtype": _DTYPES[c.precision],
        }
    if c.backend.name == "ddp" and c.gradient_compression != "none":
        hook = {"powersgd": "power_sgd"}.get(c.gradient_compression, c.gradient_compression)
        settings["ddp_comm_hook"] = hook
    return settings | model_settings(c)


def _notes(plan: Plan, c: Configuration) -> list[str]:
    notes = [
        f"the script's own arguments: per-device batch {c.micro_batch_size}, "
        f"gradient_accumulation_steps {c.gradient_accumulation_steps} "
        f"(x data_parallel {c.data_parallel} = {c.global_batch_size} sequences a step)"
    ]
    settings = script_settings(c)
    policy = settings.get("mixed_precision_policy")
    if policy is not None and policy["reduce_dtype"] != policy["param_dtype"]:
        notes.append(
            f"Accelerate reduces gradients in {policy['param_dtype']}; the plan's {policy['reduce_dtype']} needs "
            "FullyShardedDataParallelPlugin(mixed_precision_policy=...) as model_settings.json states it"
        )
    if "ddp_comm_hook" in settings:
        notes.append(f"the script passes DistributedDataParallelKwargs(comm_hook={settings['ddp_comm_hook']!r})")
    if c.backend.name != "fsdp" and _fully_recomputed(c):
        notes.append("the script calls model.gradient_checkpointing_enable()")
    if c.tensor_parallel > 1:
        notes.append("the script loads the model with tp_plan='auto' and Accelerator's device mesh")
    if c.context_parallel > 1:
        notes.append("the script runs each step inside accelerator.maybe_context_parallel(...)")
    if plan.pool.device.kind == "cpu" and c.world_size > 1:
        notes.append("accelerate launch starts several CPU processes through mpirun only, so torchrun starts them here")
    return notes


def _launch_script(plan: Plan, options: ExportOptions, head: list[str]) -> Artifact:
    """`launch.sh`: run it with the training script and its arguments, on every node."""
    assert plan.configuration is not None
    c, (nodes, _) = plan.configuration, shape(plan, options)
    if plan.pool.device.kind == "cpu" and c.world_size > 1:
        said = {"ACCELERATE_USE_CPU": "true", "ACCELERATE_MIXED_PRECISION": _mixed_precision(plan, c)}
        said |= {"ACCELERATE_DYNAMO_BACKEND": "INDUCTOR"} if c.compile else {}
        return shell_script(head, environment(plan) | said, [" ".join(torchrun(plan, options)), '"$@"'])
    command = ["accelerate launch", f'--config_file "$(dirname "$0")/{CONFIG}"']
    if nodes > 1:
        command += [
            '--machine_rank "${MACHINE_RANK:?rank of this node, 0 on the first}"',
            '--main_process_ip "${MASTER_ADDR:?address of the first node}"',
            '--main_process_port "${MASTER_PORT:-29500}"',
        ]
    return shell_script(head, environment(plan), [*command, '"$@"'])
