"""Which wrappers a configuration means. Loads no torch: the launcher asks before anything starts."""

from typing import Final, Literal

from cost_models.specs.configuration import Configuration
from executor.backends.compression import HOOKS
from executor.errors import PlanRefused

Wrapper = Literal["ddp", "fsdp", "pipeline", "deepspeed", "deepspeed_pipeline"]
LAUNCHED_BACKENDS: Final = ("deepspeed", "fsdp", "ddp")
_FEEDBACK: Final = dict.fromkeys(("powersgd", "int8", "top-k"), " with error feedback")
TORCH_OPTIMIZERS: Final = ("adamw", "sgd")
"""What the torch back ends build themselves."""


def wrapper(configuration: Configuration) -> Wrapper:
    """The trainer of a configuration.

    Raises:
        PlanRefused: no launcher for its back end.
    """
    backend = configuration.backend.name
    if backend not in LAUNCHED_BACKENDS:
        raise PlanRefused(f"the plan's backend is {backend}; this release launches {', '.join(LAUNCHED_BACKENDS)}")
    piped = configuration.pipeline_parallel > 1
    if backend == "deepspeed":
        return "deepspeed_pipeline" if piped else "deepspeed"
    if backend == "ddp":
        return "ddp"
    return "pipeline" if piped else "fsdp"


def check_trained(configuration: Configuration) -> None:
    """Hold a configuration against what `wrap` trains; a script with a loop of its own may do more.

    Raises:
        PlanRefused: naming everything that it does not.
    """
    c = configuration
    stages = {(s.layers, s.recompute) for s in c.stages}
    refused = {
        f"context_parallel {c.context_parallel}": c.context_parallel > 1,
        f"expert_parallel {c.expert_parallel}": c.expert_parallel > 1,
        "lora over tensor-parallel ranks or stages": c.lora is not None and c.tensor_parallel * c.pipeline_parallel > 1,
        "selective recompute over stages": c.pipeline_parallel > 1 and any(s.recompute.selective for s in c.stages),
        "full recompute by intervals": any(s.recompute.full and s.recompute.interval > 1 for s in c.stages),
        "activation_offload": c.activation_offload,
        f"cross_entropy {c.cross_entropy}": c.cross_entropy != "eager",
        "compile": c.compile,
        "cuda_graph": c.cuda_graph,
        "sequence_parallel in a pipeline": c.pipeline_parallel > 1 and c.sequence_parallel,
        f"attention {c.attention} in a pipeline": c.pipeline_parallel > 1 and c.attention == "eager",
    }
    if c.backend.name == "deepspeed":
        partly = any(s.recompute.full and s.recompute.none for s in c.stages)
        refused["different stages, or recompute of a part of them, in PipelineModule"] = c.pipeline_parallel > 1 and (
            len(stages) > 1 or partly
        )
    else:
        refused[f"optimizer {c.optimizer}"] = c.optimizer not in TORCH_OPTIMIZERS
        refused[f"precision {c.precision}"] = c.precision not in (
            ("bf16", "fp32", "fp16") if c.backend.name == "ddp" else ("bf16", "fp32")
        )
        compressions = ("none", *HOOKS) if c.backend.name == "ddp" else ("none", "bf16")
        refused[f"gradient_compression {c.gradient_compression}"] = c.gradient_compression not in compressions
        refused["offload of a part of the layers"] = not c.parameter_offload and any(
            s.optimizer_layers_offloaded for s in c.stages
        )
    if found := [what for what, true in refused.items() if true]:
        raise PlanRefused(f"the bundled back end {c.backend.name} does not train with {', '.join(found)}")


def described(configuration: Configuration) -> tuple[str, ...]:
    """What wraps the model, outermost last."""
    c = configuration
    name = wrapper(c)
    lines = []
    if c.lora is not None:
        lines.append(f"adapters of rank {c.lora.rank} by peft")
    if name == "ddp":
        lines.append(f"DistributedDataParallel over {c.data_parallel} processes")
        if c.gradient_compression != "none":
            lines.append(f"communication hook {c.gradient_compression}{_FEEDBACK.get(c.gradient_compression, '')}")
        return tuple(lines)
    if c.tensor_parallel > 1:
        kind = "AutoTP" if name == "deepspeed" else "parallelize_module (DTensor)"
        lines.append(f"{kind} over {c.tensor_parallel} processes{', sequence parallel' * c.sequence_parallel}")
    if name in {"fsdp", "pipeline"}:
        again = "gathered again in backward" if c.zero_stage == 3 else "kept gathered until backward"
        lines.append(f"fully_shard over {c.data_parallel} processes, weights {again}")
    else:
        lines.append(f"ZeRO stage {c.zero_stage} over {c.data_parallel} processes")
    if c.pipeline_parallel > 1:
        kind = "PipelineModule" if name == "deepspeed_pipeline" else schedule(c)
        lines.append(
            f"{kind}: {c.pipeline_parallel * c.virtual_pipeline_stages} stages over {c.pipeline_parallel} processes"
        )
    return tuple(lines)


def schedule(configuration: Configuration) -> str:
    """The class of torch.distributed.pipelining: 1F1B needs a micro-batch for every stage."""
    if configuration.virtual_pipeline_stages > 1:
        return "ScheduleInterleaved1F1B"
    enough = configuration.gradient_accumulation_steps >= configuration.pipeline_parallel
    return "Schedule1F1B" if enough else "ScheduleGPipe"
