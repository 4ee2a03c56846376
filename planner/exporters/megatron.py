"""Megatron-LM: the flags of pretrain_gpt.py that the plan decides, and the command."""

from typing import Final

from packaging.specifiers import SpecifierSet

from cost_models.schedule import chunk_sizes
from cost_models.specs.configuration import Configuration
from planner.exporters.base import Artifact, ExportOptions, header, job_losses
from planner.exporters.launch import comment, launch_script
from planner.plan import Plan

_OPTIMIZERS: Final = {"adamw": "adam", "sgd": "sgd", "muon": "muon"}

_ATTENTION: Final = {"flash": "flash", "eager": "unfused"}


class MegatronExporter:
    """Flags: megatron/training/arguments.py of these releases."""

    name = "megatron"
    versions = SpecifierSet(">=0.12,<0.18")

    def unsupported(self, plan: Plan) -> tuple[str, ...]:
        """What the flags cannot say of this plan."""
        assert plan.configuration is not None
        c = plan.configuration
        losses = job_losses(plan)
        if c.backend.name != "megatron":
            losses.append(f"the plan is for backend {c.backend.name}, its prices and rules are not Megatron's")
        if c.optimizer not in _OPTIMIZERS:
            losses.append(f"optimizer {c.optimizer}: no such --optimizer")
        if c.gradient_compression not in ("none", "bf16"):
            losses.append(f"gradient_compression {c.gradient_compression}: no flag says it")
        if c.parameter_offload:
            losses.append("parameter_offload: no flag says it")
        if c.attention not in _ATTENTION:
            losses.append(f"attention {c.attention}: no such --attention-backend")
        if c.lora is not None:
            losses.append("lora: pretrain_gpt.py trains all weights")
        losses += _recompute_losses(c)
        if c.cuda_graph and c.expert_overlap:
            losses.append("one CUDA graph of the whole step: Megatron-LM takes experts into it from core 0.18 on")
        if c.expert_overlap and any(stage.recompute.full for stage in c.stages):
            losses.append("full recompute with expert_overlap: --overlap-moe-expert-parallel-comm excludes it")
        return tuple(losses)

    def releases(self, plan: Plan) -> SpecifierSet:
        """Releases that know every flag of this plan. Source: megatron/training/arguments.py of core_v0.12.0 on."""
        assert plan.configuration is not None
        c, least = plan.configuration, "0.12"
        for known_since, used in (
            ("0.13", _chunks(c) is not None),
            ("0.14", c.zero_stage > 1 or c.expert_overlap),
            ("0.15", c.cuda_graph or c.precision == "nvfp4"),
            ("0.16", c.optimizer == "muon" or c.tensor_parallel > plan.request.model.num_key_value_heads),
        ):
            least = known_since if used else least
        return self.versions if least == "0.12" else SpecifierSet(f">={least},<0.18")

    def export(self, plan: Plan, options: ExportOptions) -> tuple[Artifact, ...]:
        """megatron_args.txt, one flag a line, and launch.sh with the same flags."""
        assert plan.configuration is not None
        losses = self.unsupported(plan)
        flags = megatron_flags(plan.configuration, options, dropout=plan.request.training.dropout or 0.0)
        head = comment(header(plan, self.name) | {"valid_for": f"megatron-core {self.releases(plan)}"})
        head += [f"# not expressed: {loss}" for loss in losses]
        return (
            Artifact(path="megatron_args.txt", media_type="text/plain", text="\n".join([*head, *flags]) + "\n"),
            launch_script(plan, self.name, options, flags, tuple(f"not expressed: {loss}" for loss in losses)),
        )


def megatron_flags(c: Configuration, options: ExportOptions, *, dropout: float = 0.0) -> list[str]:
    """The flags in the order of the degrees, the batch, the numerics, the memory savers.

    Dropout is always said: Megatron-LM's own default is 0.1 (`megatron/training/arguments.py`), the plan's is none.
    """
    flags = [
        f"--tensor-model-parallel-size {c.tensor_parallel}",
        f"--pipeline-model-parallel-size {c.pipeline_parallel}",
        f"--context-parallel-size {c.context_parallel}",
        *_layout(c),
        f"--micro-batch-size {c.micro_batch_size}",
        f"--global-batch-size {c.global_batch_size}",
        f"--optimizer {_OPTIMIZERS.get(c.optimizer, c.optimizer)}",
        f"--attention-dropout {dropout!r}",
        f"--hidden-dropout {dropout!r}",
    ]
    if c.sequence_parallel:
        flags.append("--sequence-parallel")
    if c.expert_parallel > 1 or c.expert_tensor_parallel != c.tensor_parallel:
        flags += [
            f"--expert-model-parallel-size {c.expert_parallel}",
            f"--expert-tensor-parallel-size {c.expert_tensor_parallel}",
        ]
    if c.precision in ("bf16", "fp16"):
        flags.append(f"--{c.precision}")
    elif c.precision == "fp8":
        flags += ["--bf16", "--fp8-format hybrid"]
    elif c.precision == "nvfp4":
        flags += ["--bf16", "--fp4-format e2m1", "--fp4-recipe nvfp4"]
    if c.gradient_compression == "bf16":
        flags.append("--grad-reduce-in-bf16")
    if options.learning_rate is not None:
        flags.append(f"--lr {options.learning_rate!r}")
    if c.attention in _ATTENTION:
        flags.append(f"--attention-backend {_ATTENTION[c.attention]}")
    if c.cross_entropy == "fused":
        flags += ["--cross-entropy-loss-fusion", "--cross-entropy-fusion-impl te"]
    if c.cuda_graph:
        flags.append("--cuda-graph-impl local")
    if c.expert_overlap:
        flags += ["--overlap-moe-expert-parallel-comm", "--delay-wgrad-compute"]
    return flags + _sharding(c) + _recompute(c) + _offload(c)


def _sharding(c: Configuration) -> list[str]:
    """ZeRO-1 is the distributed optimizer; ZeRO-2 and 3 are Megatron-FSDP's strategies, with its checkpoint format."""
    overlap = ["--overlap-grad-reduce"] if c.communication_overlap and c.data_parallel * c.context_parallel > 1 else []
    if c.zero_stage == 0:
        return overlap
    flags = ["--use-distributed-optimizer"]
    if c.zero_stage > 1:
        strategy = "--data-parallel-sharding-strategy optim_grads"
        flags += ["--use-megatron-fsdp", strategy, "--ckpt-format fsdp_dtensor"]
    return flags + overlap + (["--overlap-param-gather"] if overlap else [])


def _chunks(c: Configuration) -> list[int] | None:
    """The layers of every chunk along the model, where no flag but one that lists them says so.

    The others say equal chunks, or without interleaving equal stages but for the first and the last.
    """
    layers, virtual = tuple(stage.layers for stage in c.stages), c.virtual_pipeline_stages
    sizes = chunk_sizes(layers, virtual)
    along = [sizes[stage][turn] for turn in range(virtual) for stage in range(len(layers))]
    equal = len(set(along)) == 1 if virtual > 1 else len(set(layers[1:-1])) <= 1
    return None if equal else along


def _layout(c: Configuration) -> list[str]:
    layers, chunks = [stage.layers for stage in c.stages], _chunks(c)
    if chunks is not None:
        return [f"--pipeline-model-parallel-layout 'E{'|'.join(f't*{n}' if n else '' for n in chunks)}L'"]
    if c.virtual_pipeline_stages > 1:
        return [f"--num-layers-per-virtual-pipeline-stage {layers[0] // c.virtual_pipeline_stages}"]
    flags, middle = [], layers[len(layers) // 2]
    if len(layers) > 1 and layers[0] != middle:
        flags.append(f"--decoder-first-pipeline-num-layers {layers[0]}")
    if len(layers) > 1 and layers[-1] != middle:
        flags.append(f"--decoder-last-pipeline-num-layers {layers[-1]}")
    return flags


def _all_layers_alike(c: Configuration) -> bool:
    """Every layer of the model recomputed in full."""
    return all(stage.recompute.full == stage.layers for stage in c.stages)


def _recompute_losses(c: Configuration) -> list[str]:
    """--recompute-num-layers counts in each virtual stage (megatron/core/transformer/transformer_block.py)."""
    losses = []
    if len({(s.recompute.full, s.recompute.selective > 0) for s in c.stages}) > 1 and not _all_layers_alike(c):
        losses.append("recompute differs between stages: the flags are one for all")
    if any(0 < s.recompute.selective < s.layers for s in c.stages):
        losses.append("selective recompute in a part of the layers: the flag is for all of them")
    full, virtual = c.stages[0].recompute.full, c.virtual_pipeline_stages
    if full % virtual and not _all_layers_alike(c):
        losses.append(f"{full} layers recomputed over {virtual} virtual stages: the flag counts in each of them alike")
    return losses


def _recompute(c: Configuration) -> list[str]:
    counts = c.stages[0].recompute
    if _all_layers_alike(c):
        return [
            "--recompute-granularity full",
            "--recompute-method uniform",
            f"--recompute-num-layers {counts.interval}",
        ]
    if counts.full:
        each = max(1, counts.full // c.virtual_pipeline_stages)
        return ["--recompute-granularity full", "--recompute-method block", f"--recompute-num-layers {each}"]
    return ["--recompute-granularity selective"] if counts.selective else []


def _offload(c: Configuration) -> list[str]:
    offloaded, layers = sum(s.optimizer_layers_offloaded for s in c.stages), sum(s.layers for s in c.stages)
    if not offloaded:
        return []
    flags = ["--optimizer-cpu-offload", "--use-precision-aware-optimizer"]
    return flags + ([f"--optimizer-offload-fraction {offloaded / layers:.4f}"] if offloaded < layers else [])
