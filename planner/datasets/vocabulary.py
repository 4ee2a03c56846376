"""Free text of published tables -> the closed names of a configuration. The first pattern that occurs decides."""

import re
from dataclasses import dataclass
from typing import Final, Literal

from cost_models.specs.choices import (
    ATTENTIONS,
    Attention,
    Backend,
    CrossEntropy,
    Method,
    Optimizer,
    Precision,
    Recompute,
)
from planner.measurement import Measurement


class Unusable(Exception):
    """A row cannot be priced; `str` is the reason, worded so that rows alike share it."""


@dataclass(frozen=True, slots=True)
class FrameworkReading:
    """How rows of one framework are read. A default is what that framework does when its table says nothing."""

    pattern: str
    backend: Backend
    degrees: frozenset[str]
    """Parallel degrees the framework has beside data parallelism; a blank of any other is 1."""
    zero_stage: int | None = 0
    recompute: Recompute | None = None
    """None: no default, the row has to say."""
    sequence_parallel: bool = False
    """Whether tensor parallelism comes with sequence parallelism unless told otherwise."""
    overlap: bool = True
    pure: bool = False
    """A bare `bf16` means that weights, gradients and optimizer states all have it."""
    lora: tuple[int, Literal["all-linear", "attention", "qv"]] = (16, "all-linear")
    """Rank and target modules of adapters unless told otherwise."""
    cross_entropy: CrossEntropy | None = None
    """Loss of its recipes; None: the back end's own."""
    adapter_dtype: Literal["fp32", "model"] = "fp32"
    """Dtype of adapters unless told otherwise: peft's fp32, or the model's."""
    rest_of_quantized: float | None = None
    """Bytes of a weight that stays unquantised in a 4-bit model; None: the back end's own."""
    empties_cache: bool = False
    """Whether its loop returns cached segments to the device every few steps, so that little more is reserved than
    the largest batch allocates."""
    loss_variant: str | None = None
    """Loss implementation of its recipes that no plan chooses (`FrameworkFacts.loss_variants`)."""
    memory_unit: str = "GB"
    """Unit in which it logs memory, where a table does not say."""
    tied: bool | None = None
    """Whether its models share input and output embeddings; None: as the model's family does."""
    own_modules: bool = False
    """Whether its layers are its own, one module for all families, and not transformers'."""
    whole_load: bool = False
    """Whether every device loads the whole model before it is sharded."""
    reduce_bytes: float | None = None
    """Bytes in which gradients are reduced under mixed precision; None: the back end's own."""
    activation_offload: bool = False
    """Whether its recipes keep recomputed layers' inputs on the host."""
    paged_in_backward: bool = False
    """Whether its recipes with a paged optimizer on one device run it inside backward."""
    dropout: bool = False
    """Whether its arguments default to dropout above 0."""
    functional_test: bool = False
    """Whether its rows are tests of small models."""
    kept_outputs: bool = False
    """Whether its loop holds the model's outputs through backward."""


_3D: Final = frozenset({"tp", "pp"})
_ALL: Final = frozenset({"tp", "pp", "cp", "ep"})
_NONE: Final[frozenset[str]] = frozenset()
_TRANSFORMERS: Final = (
    r"peft|trl|transformers|hugging ?face|\bhf\b|unsloth|axolotl|llama-?factory|swift|pytorch|torch|ddp"
)
# Loops: `outputs = model(...); outputs.loss.backward()` holds the outputs, transformers' Trainer drops them.
# Losses: llm-foundry's MPT trains with flash-attention's fused cross-entropy (loss_fn: fused_crossentropy), torchtune's
# recipes with CEWithChunkedOutputLoss, litgpt's with lm_head_chunk_size: none of them keeps fp32 logits whole.
# PEFT's method_comparison/MetaMathQA/run.py calls empty_cache every ten steps (ACCELERATOR_EMPTY_CACHE_SCHEDULE).
# litgpt's GPT has a head of its own whatever the family (litgpt/model.py) and loads it whole (fabric.load_raw).
# Adapters and what stays unquantised: torchtune's `dtype: bf16` holds all of it in bf16, peft's
# prepare_model_for_kbit_training in fp32.
FRAMEWORKS: Final = (
    FrameworkReading(r"easycontext|xtuner", "deepspeed", frozenset({"cp"})),
    FrameworkReading(r"hf trainer \+ deepspeed", "deepspeed", _NONE, zero_stage=None, overlap=False),
    FrameworkReading(  # DeepSpeedExamples Megatron-LM-v1.1.5-ZeRO3: --partition-activations --checkpoint-in-cpu
        r"megatron.*zero-?3", "megatron-deepspeed", _3D, overlap=False, activation_offload=True
    ),
    FrameworkReading(r"megatron.*deepspeed|gpt-?neox", "megatron-deepspeed", _3D, overlap=False),
    FrameworkReading(
        r"torchtitan", "fsdp", _ALL, zero_stage=3, sequence_parallel=True, own_modules=True, memory_unit="GiB"
    ),
    FrameworkReading(r"automodel", "fsdp", _ALL, zero_stage=3, sequence_parallel=True),
    FrameworkReading(r"megatron-bridge|nemo", "megatron", _ALL, zero_stage=1, sequence_parallel=True),
    FrameworkReading(
        r"megatron-core ci", "megatron", _ALL, recompute="none", overlap=False, dropout=True, functional_test=True
    ),
    FrameworkReading(r"megatron.*v[12]\.\d", "megatron-deepspeed", _3D, overlap=False),
    FrameworkReading(r"oneflow", "megatron-deepspeed", _3D),  # its actors reduce gradients while the backward runs
    FrameworkReading(r"megatron|internevo|internlm|primus|nanotron", "megatron", _ALL, overlap=False),
    FrameworkReading(
        r"litgpt",
        "fsdp",
        _NONE,
        zero_stage=3,
        recompute="none",
        pure=True,
        lora=(8, "qv"),
        cross_entropy="fused",
        tied=False,
        whole_load=True,
        own_modules=True,
    ),
    FrameworkReading(
        r"torchtune",
        "fsdp",
        _NONE,
        zero_stage=3,
        pure=True,
        lora=(8, "qv"),
        cross_entropy="fused",
        adapter_dtype="model",
        rest_of_quantized=2.0,
        own_modules=True,
        paged_in_backward=True,
        loss_variant="chunked",
    ),
    FrameworkReading(
        r"composer|llm-foundry", "fsdp", _NONE, zero_stage=3, pure=True, cross_entropy="fused", reduce_bytes=2.0
    ),
    FrameworkReading(r"fsdp", "fsdp", _NONE, zero_stage=3),
    FrameworkReading(r"deepspeed|zero", "deepspeed", _3D, zero_stage=None),
    FrameworkReading(r"colossal-?ai|gemini", "fsdp", _3D, zero_stage=3),
    FrameworkReading(
        r"peft method_comparison", "ddp", _NONE, pure=True, lora=(8, "qv"), kept_outputs=True, empties_cache=True
    ),
    FrameworkReading(r"transformers \+ peft", "ddp", _NONE, lora=(8, "qv"), kept_outputs=True),
    FrameworkReading(_TRANSFORMERS, "ddp", _NONE, lora=(8, "qv")),
)


_PRECISIONS: Final[tuple[tuple[str, Precision], ...]] = (
    (r"fp8|float8", "fp8"),
    (r"bf16|bfloat16", "bf16"),
    (r"fp16|float16|half", "fp16"),
    (r"fp32|float32|tf32", "fp32"),
)
_OPTIMIZERS: Final[tuple[tuple[str, Optimizer], ...]] = (
    (r"1bit|onebit", "1-bit-adam"),
    (r"muon", "muon"),
    (r"8bit", "adamw-8bit"),
    (r"adafactor", "adafactor"),
    (r"lion", "lion"),
    (r"sgd", "sgd"),
    (r"adam", "adamw"),
)


def framework_of(row: Measurement) -> tuple[FrameworkReading, str]:
    """How the row's framework is read, and what had to be assumed for it.

    One that is not known is priced as the back end that does what the row says: Megatron-LM where tensors or stages are
    split, FSDP where weights are, plain data parallelism else.

    Raises:
        Unusable: the framework is blank.
    """
    text = row.framework.lower()
    if not text:
        raise Unusable("framework not stated")
    for reading in FRAMEWORKS:
        if re.search(reading.pattern, text):
            return reading, ""
    splits = any((degree or 1) > 1 for degree in (row.tp, row.pp, row.ep))
    backend: Backend = "megatron" if splits else "fsdp" if row.zero_stage else "ddp"
    return FrameworkReading("", backend, _ALL, zero_stage=None), f"framework: {row.framework} priced as {backend}"


def backend_of(reading: FrameworkReading, zero_stage: int, *, splits: bool) -> Backend:
    """The back end: one without sharding and splitting is plain data parallelism, whatever its trainer is called."""
    backend = reading.backend
    if splits:
        return "fsdp" if backend == "ddp" else backend
    if backend in {"fsdp", "deepspeed"} and zero_stage == 0:
        return "ddp"
    if backend == "ddp" and zero_stage >= 1:
        return "fsdp"
    return backend


def precision_of(row: Measurement) -> tuple[Precision, str]:
    """The precision, and what had to be assumed for it ("" for nothing).

    Raises:
        Unusable: blank or unknown.
    """
    text = row.precision.lower()
    if not text:
        raise Unusable("precision not stated")
    if re.search(r"nvfp4|mxfp4|fp4", text):
        return "fp8", f"precision: {row.precision} priced as fp8"
    for pattern, name in _PRECISIONS:
        if re.search(pattern, text):
            return name, ""
    raise Unusable(f"precision not known: {row.precision}")


def is_pure(row: Measurement, reading: FrameworkReading) -> bool:
    """Whether no fp32 copy of the weights exists: said outright, or what a bare 16-bit name means to the framework."""
    text = row.precision.lower()
    if re.search(r"mixed|amp|fp32 master|fp8|float8", text):
        return False
    stated = flag(row, "pure_low_precision")
    if stated is not None:
        return stated
    return bool(re.search(r"true|pure", text)) or reading.pure or row.method.lower() in {"lora", "qlora"}


def recompute_of(row: Measurement, reading: FrameworkReading) -> tuple[Recompute, str]:
    """How much of the forward pass is repeated, and what had to be assumed for it."""
    text = row.recompute.lower()
    if text.startswith(
        ("full", "yes", "true", "on", "uniform", "block", "gradient", "activation", "ckpt", "checkpoint")
    ):
        return "full", ""
    if text.startswith(("selective", "sac", "op", "attn", "attention", "partial")):
        return "selective", ""
    if text.startswith(("none", "no", "false", "off")):
        return "none", ""
    if text not in {"", "unknown", "?"}:
        raise Unusable(f"recompute not known: {row.recompute}")
    if reading.recompute is not None:
        return reading.recompute, ""
    return "none", "recompute: not stated, none assumed"


def attention_of(row: Measurement, backend: Backend) -> tuple[Attention, str]:
    """The attention kernel, and what had to be assumed for it."""
    stated = row.facts.get("attention", "")
    if stated in ATTENTIONS:
        return stated, ""
    text = row.flash_attn.lower()
    if re.search(r"sdpa|xformers|mem-?eff", text):
        return "sdpa", ""
    if flag(row, "transformer_engine") is False and not text.startswith("yes"):
        return "eager", ""  # Megatron-LM's own attention materialises its scores
    if re.match(r"yes|true|fused|flash|fa[23]?\b|cudnn", text):
        return "flash", ""
    if re.match(r"no|false|eager|math|unfused", text):
        return "eager", ""
    default: Attention = "sdpa" if backend in {"ddp", "fsdp", "deepspeed"} else "flash"
    said = "left to `auto`" if "auto" in text else "not stated"
    return default, f"attention: {said}, {default} assumed"


def optimizer_of(row: Measurement) -> tuple[Optimizer, str]:
    """The optimizer, and what had to be assumed for it."""
    text = row.optimizer.lower().replace(" ", "").replace("-", "")
    for pattern, name in _OPTIMIZERS:
        if re.search(pattern, text):
            return name, ""
    if text:
        raise Unusable(f"optimizer not known: {row.optimizer}")
    return "adamw", "optimizer: not stated, adamw assumed"


def method_of(row: Measurement) -> Method:
    """Full, LoRA or QLoRA.

    Raises:
        Unusable: the adapters are of another kind.
    """
    kind = row.facts.get("peft_type", "").lower()
    if kind not in {"", "lora", "full", "qlora"}:
        raise Unusable("adapter is not LoRA")
    text = row.method.lower()
    names: tuple[Method, ...] = ("qlora", "lora", "full")
    for name in names:
        if text.startswith(name):
            return name
    if text in {"", "pretrain", "sft"}:
        return "full"
    raise Unusable(f"method not known: {row.method}")


def runs_in_backward(row: Measurement, reading: FrameworkReading) -> bool:
    """Whether each gradient is applied and freed inside backward (torchtune `optimizer_in_bwd`)."""
    text = row.optimizer.lower()
    paged = reading.paged_in_backward and "paged" in text and row.n_gpus == 1
    stated = flag(row, "optimizer_in_backward") is True
    return method_of(row) == "full" and (paged or stated or "backward" in text)


def offload_of(row: Measurement) -> tuple[bool, bool, bool]:
    """Whether optimizer states, parameters and activations live on the host."""
    text = row.offload.lower()
    return "optim" in text, "param" in text, "activation" in text


def flag(row: Measurement, fact: str) -> bool | None:
    """A yes-or-no fact of the notes; None where they say nothing."""
    value = row.facts.get(fact, "").lower()
    return True if value in {"yes", "true", "1", "on"} else False if value in {"no", "false", "0", "off"} else None
