"""What a report's own numbers break before anything is launched; each rule needs only the numbers that it compares.

The back ends' full rules (solver/legality) need a whole configuration; reports seldom state one.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Final

from cost_models import catalog
from cost_models.errors import SpecError
from planner.datasets.cases import UserCase
from planner.datasets.shapes import preset_of


@dataclass(frozen=True, slots=True)
class NumberRule:
    """One rule: where it can be asked, what it says when broken, and who says so."""

    id: str
    broken: Callable[[UserCase], str]
    """Both sides of the broken rule, or ""."""
    source: str


def broken_rules(case: UserCase) -> tuple[str, ...]:
    """Every rule that the stated numbers break, in one line each."""
    found = ((rule, rule.broken(case)) for rule in RULES)
    return tuple(f"{rule.id}: {message}" for rule, message in found if message)


def _framework(case: UserCase) -> str:
    return case.text("config", "framework")


def _degree(case: UserCase, key: str) -> int:
    return case.whole("config", key) or 1


def _head_width(case: UserCase) -> str:
    hidden, heads, width = (case.whole("model", key) for key in ("hidden", "heads", "head_dim"))
    if hidden and heads and not width and hidden % heads:
        return f"hidden {hidden} is no multiple of heads {heads}"
    return ""


def _groups(case: UserCase) -> str:
    heads, groups = case.number("model", "heads"), case.number("model", "kv_heads")
    if groups is not None and groups < 1:
        return f"kv_heads {groups:g} is not positive"
    if heads and groups and heads % groups:
        return f"heads {heads:g} is no multiple of kv_heads {groups:g}"
    return ""


def _heads_by_tensor(case: UserCase) -> str:
    heads, groups, tp = case.whole("model", "heads"), case.whole("model", "kv_heads"), _degree(case, "tp")
    if heads and heads % tp:
        return f"heads {heads} is no multiple of tensor parallel {tp}"
    if groups and groups % tp and (tp % groups or "titan" in _framework(case)):
        return f"kv_heads {groups} and tensor parallel {tp} do not divide each other"
    return ""


def _heads_by_sequence(case: UserCase) -> str:
    degree = case.whole("config", "sp") or case.whole("config", "ulysses")
    heads, groups = case.whole("model", "heads"), case.whole("model", "kv_heads")
    if not degree or degree == 1 or "ring" in _framework(case):
        return ""
    if heads and heads % degree:
        return f"heads {heads} is no multiple of sequence parallel {degree}"
    if groups and groups % degree and degree % groups:
        return f"kv_heads {groups} and sequence parallel {degree} do not divide each other"
    return ""


def _layers_by_stages(case: UserCase) -> str:
    layers, pp, vpp = case.whole("model", "layers"), _degree(case, "pp"), _degree(case, "vpp")
    text = " ".join(f"{key} {value}" for key, value in case.config.items() if value is not None).lower()
    uneven = re.search(r"layout|first_stage|first[- _]pipeline|last[- _]pipeline|account_for|\buneven\b", text)
    if layers and pp > layers:
        return f"{pp} pipeline stages but {layers} layers"
    if layers and pp > 1 and layers % (pp * vpp) and not uneven and "deepspeed" not in _framework(case):
        return f"layers {layers} is no multiple of pipeline {pp} x virtual {vpp}"
    return ""


def _virtual(case: UserCase) -> str:
    pp, vpp = case.whole("config", "pp"), _degree(case, "vpp")
    return f"virtual stages {vpp} without a pipeline" if vpp > 1 and pp == 1 else ""


def _world(case: UserCase) -> str:
    world = case.whole("hardware", "n_gpus")
    product = prod(_degree(case, key) for key in ("tp", "pp", "cp"))
    if world and product > world:
        return f"tensor x pipeline x context = {product} exceeds {world} devices"
    if world and world % product:
        return f"{world} devices is no multiple of tensor x pipeline x context = {product}"
    dp = case.whole("config", "dp")
    if world and dp and "n_gpus" not in str(case.assumed_fields) and world != product * dp:
        return f"tensor x pipeline x context x data = {product * dp} is not the {world} devices"
    return ""


def _experts(case: UserCase) -> str:
    experts, ep = case.whole("model", "experts"), _degree(case, "ep")
    if ep == 1:
        return ""
    if experts and experts % ep:
        return f"experts {experts} is no multiple of expert parallel {ep}"
    world = case.whole("hardware", "n_gpus")
    here = world // _degree(case, "pp") if world else 0
    if world and here % (ep * (case.whole("config", "etp") or 1)):
        return f"{here} devices of a stage is no multiple of expert parallel {ep}"
    return ""


def _expert_tensor(case: UserCase) -> str:
    parallel = case.stated("config", "sequence_parallel")
    if case.whole("model", "experts") and _degree(case, "tp") > 1 and parallel is False:
        return f"experts with tensor parallel {_degree(case, 'tp')} need sequence parallelism"
    return ""


def _data_parallel(case: UserCase) -> int | None:
    world = case.whole("hardware", "n_gpus")
    stated = case.whole("config", "dp")
    product = prod(_degree(case, key) for key in ("tp", "pp", "cp", "sp"))
    return stated or (world // product if world and world % product == 0 else None)


def _widths(case: UserCase) -> str:
    tp = _degree(case, "tp")
    for key in ("hidden", "ffn"):
        width = case.whole("model", key)
        if width and width % tp:
            return f"{key} {width} is no multiple of tensor parallel {tp}"
    return ""


def _batch(case: UserCase) -> str:
    batch = case.whole("config", "global_batch")
    micro, steps, dp = case.whole("config", "micro_batch"), case.whole("config", "grad_accum"), _data_parallel(case)
    if not batch or not micro or not dp:
        return ""
    if steps and micro * steps * dp != batch:
        low = batch // (micro * dp) * micro * dp
        return (
            f"global batch {batch} is not micro-batch {micro} x steps {steps} x data parallel {dp} = "
            f"{micro * steps * dp}; {low or micro * dp} and {low + micro * dp} can be made"
        )
    return f"global batch {batch} is no multiple of {micro} x data parallel {dp}" if batch % (micro * dp) else ""


def _micro_batches(case: UserCase) -> str:
    pp, vpp, steps = _degree(case, "pp"), _degree(case, "vpp"), case.whole("config", "grad_accum")
    batch, micro, dp = case.whole("config", "global_batch"), case.whole("config", "micro_batch"), _data_parallel(case)
    if not steps and batch and micro and dp:
        steps = batch // (micro * dp)
    if steps and vpp > 1 and steps % pp and "megatron" in _framework(case):
        return f"{steps} micro-batches is no multiple of pipeline {pp}, which interleaving needs"
    return ""


def _sharded_pipeline(case: UserCase) -> str:
    stage, pp = case.number("config", "zero_stage"), _degree(case, "pp")
    if stage is not None and stage >= _GRADIENT_STAGE and pp > 1:
        return f"ZeRO stage {stage:g} with {pp} pipeline stages"
    return ""


_GRADIENT_STAGE: Final = 2


def _sharded_experts(case: UserCase) -> str:
    stage, ep = case.number("config", "zero_stage"), _degree(case, "ep")
    if ep > 1 and stage == _WEIGHT_STAGE and "deepspeed" in _framework(case) and "megatron" not in _framework(case):
        return f"ZeRO stage 3 with expert parallel {ep}"
    return ""


_WEIGHT_STAGE: Final = 3


def _compressed(case: UserCase) -> str:
    text, stage = case.text("config", "optimizer"), case.number("config", "zero_stage")
    if re.search(r"1-?bit|one-?bit|0/1 ?adam", text) and stage is not None and stage >= _GRADIENT_STAGE:
        return f"a 1-bit optimizer with ZeRO stage {stage:g}"
    return ""


def _host_optimizer(case: UserCase) -> str:
    text, offload = case.text("config", "optimizer"), case.text("config", "offload")
    if re.search(r"8[- ]?bit", text) and "optim" in offload and "deepspeed" in _framework(case):
        return f"optimizer {text} cannot run on the host: offloading needs DeepSpeedCPUAdam"
    return ""


def _host_weights(case: UserCase) -> str:
    stage, offload = case.number("config", "zero_stage"), case.text("config", "offload")
    if stage is None or stage >= _WEIGHT_STAGE or "deepspeed" not in _framework(case):
        return ""
    moved = "parameters" if "param" in offload else "NVMe" if "nvme" in offload else ""
    return f"offloading of {moved} with ZeRO stage {stage:g}: it is available with stage 3 only" if moved else ""


def _dispatched(case: UserCase) -> str:
    world, loading = case.whole("hardware", "n_gpus"), case.text("config", "device_map")
    if loading == "auto" and world and world > 1 and re.search(r"deepspeed|fsdp|ddp|torchrun", _framework(case)):
        return f"device_map auto in a distributed run of {world} processes"
    return ""


def _device_precision(case: UserCase) -> str:
    text = case.text("config", "precision")
    wanted = "fp8" if "fp8" in text else "bf16" if re.match(r"(?:pure )?(?:bf16|bfloat16)", text) else ""
    name = str(case.stated("hardware", "gpu") or "")
    if not wanted or {"config.precision", "hardware.gpu"} & case.assumed_fields or "/" in text:
        return ""
    try:
        devices = catalog.device_candidates(name)
    except SpecError:
        return ""
    lacking = all(wanted not in device.peak_flops for device in devices)
    return f"{wanted} on {name}, whose tensor cores lack it" if lacking else ""


def _device_kernel(case: UserCase) -> str:
    name, text = str(case.stated("hardware", "gpu") or ""), case.text("config", "attention")
    second = re.search(r"flash[- _]?attn?(?:ention)?[- _]?(?:v)?2|\bfa-?2|flash_attention_2", text)
    if second and re.search(r"v100|\bt4\b|rtx 20|p100|p40", name.lower()):
        return f"flash-attention 2 on {name}, which needs compute capability 8.0"
    if second and re.match(r"fp32|float32", case.text("config", "precision")):
        return "flash-attention 2 with fp32, which has only 16-bit kernels"
    width = case.whole("model", "head_dim")
    if second and width and width > _WIDEST_HEAD:
        return f"flash-attention 2 with heads of {width}, wider than {_WIDEST_HEAD}"
    return ""


_WIDEST_HEAD: Final = 256


def _positions(case: UserCase) -> str:
    length, known = case.whole("config", "seq_len"), preset_of(str(case.stated("model", "hf_id") or ""))
    made_to_measure = re.search(r"megatron|nemo|neox|nanogpt|torchtitan", _framework(case))
    if length is None or known is None or known.position_embedding != "learned" or made_to_measure:
        return ""
    rows = known.max_position_embeddings or known.position_embedding_rows
    return f"sequence {length} exceeds the {rows} learned positions of {known.name}" if 0 < rows < length else ""


def _backward_optimizer(case: UserCase) -> str:
    steps = case.whole("config", "grad_accum")
    if "backward" in case.text("config", "optimizer") and steps and steps > 1:
        return f"an optimizer inside backward with {steps} accumulated micro-batches"
    return ""


def _sequence_shards(case: UserCase) -> str:
    length, cp = case.whole("config", "seq_len"), _degree(case, "cp")
    if length and cp > 1 and length % (2 * cp):
        return f"sequence {length} is no multiple of 2 x context parallel {cp}"
    tp = _degree(case, "tp")
    if length and tp > 1 and case.stated("config", "sequence_parallel") is True and length % (cp * tp):
        return f"sequence {length} is no multiple of tensor parallel {tp}"
    return ""


def _vocabulary(case: UserCase) -> str:
    rows, tp = case.whole("model", "vocab"), _degree(case, "tp")
    pads = re.search(r"megatron|nemo|bridge|swift|neox", _framework(case))
    if rows and tp > 1 and rows % tp and not pads:
        return f"vocabulary {rows} is no multiple of tensor parallel {tp}, and {_framework(case)} does not pad it"
    return ""


RULES: Final = (
    NumberRule("head_width", _head_width, "transformers models/llama/configuration_llama.py, validate_architecture"),
    NumberRule("kv_heads", _groups, "arXiv:2305.13245, section 2.2: query heads are divided into groups"),
    NumberRule("heads_tp", _heads_by_tensor, "Megatron-LM core/transformer/transformer_config.py"),
    NumberRule("heads_sp", _heads_by_sequence, "arXiv:2309.14509, section 3.1; verl, ulysses_sequence_parallel_size"),
    NumberRule("layers_pp", _layers_by_stages, "Megatron-LM training/arguments.py"),
    NumberRule("virtual", _virtual, "Megatron-LM training/arguments.py"),
    NumberRule("world", _world, "Megatron-LM core/parallel_state.py"),
    NumberRule("experts", _experts, "Megatron-LM core/parallel_state.py"),
    NumberRule("experts_tp", _expert_tensor, "Megatron-LM core/transformer/moe/README.md"),
    NumberRule("widths_tp", _widths, "Megatron-LM core/tensor_parallel/layers.py, divide"),
    NumberRule("batch", _batch, "DeepSpeed runtime/config.py, _batch_assertion"),
    NumberRule("micro_batches", _micro_batches, "Megatron-LM core/pipeline_parallel/schedules.py"),
    NumberRule("zero_pp", _sharded_pipeline, "DeepSpeed runtime/pipe/engine.py: ZeRO-2 and ZeRO-3 are incompatible"),
    NumberRule("zero_ep", _sharded_experts, "DeepSpeed runtime/engine.py: MoE is not supported with ZeRO stage 3"),
    NumberRule("one_bit", _compressed, "deepspeed.ai/tutorials/onebit-adam: not compatible with ZeRO stage 2 and 3"),
    NumberRule("host_optimizer", _host_optimizer, "DeepSpeed runtime/engine.py, zero_force_ds_cpu_optimizer"),
    NumberRule("host_weights", _host_weights, "deepspeed.ai/docs/config-json: offload_param and NVMe, stage 3 only"),
    NumberRule("device_map", _dispatched, "accelerate Accelerator.prepare_model: device_map auto in distributed mode"),
    NumberRule("precision", _device_precision, "NVIDIA CUDA C++ programming guide, compute capabilities"),
    NumberRule("kernel", _device_kernel, "github.com/Dao-AILab/flash-attention README: Ampere or newer"),
    NumberRule("positions", _positions, "transformers models/gpt2/modeling_gpt2.py: a table of n_positions rows"),
    NumberRule("in_backward", _backward_optimizer, "torchtune recipes/full_finetune_single_device.py"),
    NumberRule("sequence", _sequence_shards, "Megatron-LM core/utils.py, get_batch_on_this_cp_rank"),
    NumberRule("vocabulary", _vocabulary, "torch.distributed.tensor.parallel documents, RowwiseParallel"),
)
"""In the order they are reported."""
