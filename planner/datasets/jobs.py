"""A measured row as a job and a configuration that can be priced, with everything that had to be assumed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cost_models.errors import SpecError
from cost_models.job import Job
from cost_models.parameters import total_parameters
from cost_models.specs.choices import CROSS_ENTROPIES, Attention, Backend, CrossEntropy, Recompute
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.configuration import BackendChoice, Configuration, RecomputeCounts, Stage
from cost_models.specs.model import ModelSpec
from cost_models.specs.training import LoraSpec, TrainingSpec
from planner.datasets.batches import batch_of
from planner.datasets.clusters import pool_of
from planner.datasets.facts import framework_changes, open_losses, unmodelled, unsaid
from planner.datasets.frameworks import FrameworkReading, backend_of, framework_of
from planner.datasets.layouts import stage_layers
from planner.datasets.recipes import with_recipe
from planner.datasets.shapes import model_of
from planner.datasets.tokens import unreadable_token
from planner.datasets.unusable import Unusable
from planner.datasets.vocabulary import (
    attention_of,
    flag,
    is_pure,
    method_of,
    offload_of,
    optimizer_of,
    precision_of,
    recompute_of,
    runs_in_backward,
)
from planner.measurement import Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is priced for one row."""

    job: Job
    configuration: Configuration
    assumed: tuple[str, ...]
    """`key: why` of everything the row leaves open."""
    ambiguous_device: bool
    """The name's candidates differ in memory: then only what is alike on all of them is compared."""
    other_devices: tuple[str, ...] = ()
    """Further devices that the row's name may mean."""
    framework_changes: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the back end's facts in which the run differs from the catalogue's."""
    open_attention: tuple[Attention, ...] = ()
    """Attention kernels that may have run instead of the priced one."""
    open_losses: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """Loss implementations that may have run instead of the priced one: names, and their changes of the facts."""
    unmodelled: str = ""
    """Why its memory cannot be predicted; "" where it can."""
    kin: bool = False
    """Its framework is priced as one that it only resembles."""
    pure_low_precision: bool = False
    """Weights, gradients and optimizer states have the 16-bit dtype; there is no fp32 copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Degrees:
    """Parallel degrees and batch of a row."""

    tp: int
    pp: int
    cp: int
    ep: int
    dp: int
    vpp: int
    zero_stage: int
    micro_batch: int
    grad_accum: int
    assumed: tuple[str, ...]


def case_of(row: Measurement) -> Case:
    """The job and configuration of a row.

    Raises:
        Unusable: a needed field is blank, unknown or contradicts another; `str` is the reason that is counted.
    """
    row = with_recipe(row)
    if row.unreadable_inputs:
        raise Unusable(f"unreadable cell: {row.unreadable_inputs[0]}")
    if token := unreadable_token(row.facts):
        raise Unusable(f"unreadable token: {token}")
    if row.facts.get("degrees") == "inconsistent":
        raise Unusable("printed degrees contradict the world size")
    reading, of_framework = framework_of(row)
    if reading.tied is not None and "tied" not in row.facts:
        row = row.model_copy(update={"facts": {**row.facts, "tied": "yes" if reading.tied else "no"}})
    model, of_model = model_of(row)
    if reading.own_modules:
        fused = {"gelu_new": "gelu", "gelu_fast": "gelu"}.get(model.activation, model.activation)
        model = model.model_copy(update={"model_type": reading.own_modules, "activation": fused})
    if row.seq_len is None:
        raise Unusable("sequence length not stated")
    nodes, others, ambiguous = pool_of(row)
    degrees = degrees_of(row, reading, model)
    precision, of_precision = precision_of(row)
    optimizer, of_optimizer = optimizer_of(row)
    method = method_of(row)
    lora, of_lora = _lora(row, reading, method)
    assumed: list[str] = [of_framework, *of_model, *degrees.assumed, of_precision, of_optimizer, of_lora]
    try:
        training = TrainingSpec(
            method=method, sequence_length=row.seq_len, precision=precision, optimizer=optimizer, lora=lora,
            global_batch_size=degrees.micro_batch * degrees.grad_accum * degrees.dp, padded=flag(row, "padded") is True,
            optimizer_paged="paged" in row.optimizer.lower(), optimizer_in_backward=runs_in_backward(row, reading),
            expandable_segments=flag(row, "expandable_segments") is True,
            load="whole_on_device" if reading.whole_load and degrees.zero_stage >= 3 else "auto",
        )  # fmt: skip
        configuration, of_choices = _configuration(row, reading, degrees, model, training)
    except (SpecError, ValueError) as error:
        raise Unusable(f"row contradicts itself: {str(error).splitlines()[0]}") from error
    pure = is_pure(row, reading)
    job = Job(model=model, cluster=ClusterSpec(pools=(nodes,)), training=training)
    return Case(
        job=job,
        configuration=configuration,
        assumed=tuple(text for text in (*assumed, *of_choices) if text),
        ambiguous_device=ambiguous,
        other_devices=others,
        framework_changes=framework_changes(row, reading, configuration.backend.name, model, pure=pure),
        open_attention=unsaid(row, configuration.backend.name, configuration.attention),
        open_losses=open_losses(row, configuration.backend.name),
        unmodelled=unmodelled(row),
        kin=reading.kin,
        pure_low_precision=pure,
    )


def could_not_have_run(row: Measurement, case: Case) -> bool:
    """Whether a run on one device that is said to have worked trains all weights of a model whose weights, gradients
    and two moments alone, at the least bytes they can have, are more than the device holds: the row names another run.
    """
    training, configuration = case.job.training, case.configuration
    moved = configuration.parameter_offload or any(s.optimizer_layers_offloaded for s in configuration.stages)
    moved = moved or training.optimizer_in_backward or training.optimizer_paged
    plain = training.method == "full" and training.optimizer == "adamw" and not moved
    least = (8.0 if case.pure_low_precision else 16.0) * total_parameters(case.job.model)
    return row.outcome == "ok" and row.n_gpus == 1 and plain and least > case.job.device.usable_memory_bytes


def degrees_of(row: Measurement, reading: FrameworkReading, model: ModelSpec) -> Degrees:
    """Degrees and batch: a blank degree is 1 only where the framework has none such or the others fill the devices.

    Raises:
        Unusable: a degree or the batch is not stated, or the numbers contradict each other.
    """
    world = row.n_gpus or 0
    known = {"tp": row.tp, "pp": row.pp, "cp": row.cp}
    for key, value in known.items():
        if value is None and (key not in reading.degrees or world == 1):
            known[key] = 1
    stated = [value for value in (*known.values(), row.dp) if value is not None]
    product = 1
    for value in stated:
        product *= value
    if product == world:
        known = {key: value or 1 for key, value in known.items()}
    missing = [key for key, value in known.items() if value is None]
    if missing:
        raise Unusable(f"{missing[0]} not stated")
    tp, pp, cp = (int(known[key] or 1) for key in ("tp", "pp", "cp"))
    if world % (tp * pp * cp):
        raise Unusable("printed degrees contradict the world size")
    dp = row.dp if row.dp is not None else world // (tp * pp * cp)
    if tp * pp * cp * dp != world:
        raise Unusable("printed degrees contradict the world size")
    zero, of_zero = _zero_stage(row, reading, dp)
    micro, accumulation, of_batch = batch_of(row, reading, dp)
    return Degrees(
        tp=tp, pp=pp, cp=cp, ep=_expert_parallel(row, reading, model), dp=dp, vpp=row.vpp or 1, zero_stage=zero,
        micro_batch=micro, grad_accum=accumulation, assumed=tuple(text for text in (of_zero, of_batch) if text),
    )  # fmt: skip


def _expert_parallel(row: Measurement, reading: FrameworkReading, model: ModelSpec) -> int:
    if row.ep is not None:
        return row.ep if model.moe is not None else 1
    if model.moe is None or "ep" not in reading.degrees:
        return 1
    raise Unusable("ep not stated")


def _zero_stage(row: Measurement, reading: FrameworkReading, dp: int) -> tuple[int, str]:
    if row.zero_stage is not None:
        if row.zero_stage > 3:
            raise Unusable("zero_stage is above 3")
        return row.zero_stage, ""
    if dp == 1:
        return 0, ""
    if reading.zero_stage is None:
        raise Unusable("zero_stage not stated")
    return reading.zero_stage, f"zero_stage: not stated, {reading.zero_stage} assumed for {row.framework}"


def _lora(row: Measurement, reading: FrameworkReading, method: str) -> tuple[LoraSpec | None, str]:
    if method == "full":
        return None, ""
    changes: dict[str, Any] = {}
    rank = row.facts.get("lora_rank", "")
    if rank.isdecimal() and int(rank) > 0:
        changes["rank"] = int(rank)
    targets = row.facts.get("lora_targets", "")
    if targets:
        changes["target_modules"] = (
            targets if targets in {"all-linear", "attention", "qv"} else tuple(targets.split("+"))
        )
    for key in ("train_embeddings", "double_quantization"):
        stated = flag(row, key)
        if stated is not None:
            changes[key] = stated
    stated_dtype = row.facts.get("adapter_dtype")
    changes["adapter_dtype"] = stated_dtype if stated_dtype in {"fp32", "model"} else reading.adapter_dtype
    changes["dropout"] = reading.adapter_dropout
    try:
        spec = LoraSpec.read({"rank": reading.lora[0], "target_modules": reading.lora[1]} | changes)
    except SpecError as error:
        raise Unusable(f"row contradicts itself: {error}") from error
    missing = [key for key in ("rank", "target_modules") if key not in changes]
    return (
        spec,
        f"lora: {' and '.join(missing)} not stated, {spec.rank} and {spec.target_modules} assumed" if missing else "",
    )


def _configuration(
    row: Measurement, reading: FrameworkReading, degrees: Degrees, model: ModelSpec, training: TrainingSpec
) -> tuple[Configuration, tuple[str, ...]]:
    backend = backend_of(reading, degrees.zero_stage, splits=degrees.tp * degrees.pp * degrees.cp > 1)
    recompute, of_recompute = recompute_of(row, reading)
    attention, of_attention = attention_of(row, backend)
    optimizer_offload, parameter_offload, activation_offload = offload_of(row)
    activation_offload = activation_offload or (reading.activation_offload and recompute == "full")
    layers_of = stage_layers(row, model.num_hidden_layers, degrees.pp)
    expert_tensor = row.facts.get("expert_tensor_parallel", "")
    overlap = flag(row, "communication_overlap")
    configuration = Configuration(
        backend=BackendChoice(name=backend),
        tensor_parallel=degrees.tp,
        sequence_parallel=degrees.tp > 1 and (flag(row, "sequence_parallel") or _by_default(row, reading)),
        context_parallel=degrees.cp,
        expert_parallel=degrees.ep,
        expert_tensor_parallel=(int(expert_tensor) if expert_tensor.isdecimal() else degrees.tp) if model.moe else 1,
        pipeline_parallel=degrees.pp,
        virtual_pipeline_stages=degrees.vpp if degrees.pp > 1 else 1,
        data_parallel=degrees.dp,
        zero_stage=degrees.zero_stage,
        micro_batch_size=degrees.micro_batch,
        gradient_accumulation_steps=degrees.grad_accum,
        stages=tuple(_stage(layers, recompute, offloaded=optimizer_offload) for layers in layers_of),
        parameter_offload=parameter_offload,
        activation_offload=activation_offload,
        precision=precision_of(row)[0],
        attention=attention,
        cross_entropy=_cross_entropy(row, reading, backend, degrees.tp),
        gradient_compression="bf16" if reading.reduce_bytes == 2.0 else "none",
        optimizer=training.optimizer,
        fused_kernels=backend != "ddp",
        cuda_graph=flag(row, "cuda_graph") is True,
        compile=flag(row, "compile") is True,
        communication_overlap=reading.overlap if overlap is None else overlap,
        expert_overlap=flag(row, "expert_overlap") is True,
        lora=training.adapters,
    )
    return configuration, (of_recompute, of_attention)


def _by_default(row: Measurement, reading: FrameworkReading) -> bool:
    return reading.sequence_parallel and flag(row, "sequence_parallel") is None


def _stage(layers: int, recompute: Recompute, *, offloaded: bool) -> Stage:
    counts = RecomputeCounts(**{recompute: layers})
    return Stage(layers=layers, recompute=counts, optimizer_layers_offloaded=layers if offloaded else 0)


def _cross_entropy(row: Measurement, reading: FrameworkReading, backend: Backend, tp: int) -> CrossEntropy:
    """Stated, the recipe's own, or over vocabulary shards where tensors are split (Megatron-LM, loss_parallel)."""
    stated = row.facts.get("cross_entropy", "")
    if stated in CROSS_ENTROPIES:
        return stated
    if reading.cross_entropy is not None:
        return reading.cross_entropy
    return "vocab_parallel" if backend.startswith("megatron") or tp > 1 else "eager"
