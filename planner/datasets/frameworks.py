"""How rows of each framework are read: its back end, and what it does when a table says nothing."""

import re
from dataclasses import dataclass
from typing import Final, Literal

from cost_models.specs.choices import Backend, CrossEntropy, Recompute
from planner.datasets.unusable import Unusable
from planner.measurement import Measurement


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
    old_bitsandbytes: bool = False
    """Whether it asks for bitsandbytes before 0.43.2, and stores the head in 4 bits too."""
    flat_units: bool = False
    """Whether it shards flat parameters, as FSDP1 does."""
    empties_cache: bool = False
    """Whether its loop returns cached segments to the device every few steps, so that little more is reserved than
    the largest batch allocates."""
    loss_variant: str | None = None
    """Loss implementation of its recipes that no plan chooses (`FrameworkFacts.loss_variants`)."""
    loss_variant_full: str | None = None
    """The same where all weights are trained; None: as with adapters."""
    memory_unit: str = "GB"
    """Unit in which it logs memory, where a table does not say."""
    tied: bool | None = None
    """Whether its models share input and output embeddings; None: as the model's family does."""
    own_modules: str = ""
    """Under which name its layers are known, where they are its own, one module for all families, and not
    transformers'."""
    adapter_dropout: float = 0.0
    """Dropout of adapters unless told otherwise."""
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
    as_many_as_stages: bool = False
    """Whether a pipeline has as many micro-batches as stages unless told otherwise."""
    kin: bool = False
    """Whether it is priced as a framework that it only resembles: no published run of its own is behind that."""
    kept_outputs: bool = False
    """Whether its loop holds the model's outputs through backward."""


_3D: Final = frozenset({"tp", "pp"})
_ALL: Final = frozenset({"tp", "pp", "cp", "ep"})
_NONE: Final[frozenset[str]] = frozenset()
_TRANSFORMERS: Final = (
    r"peft|trl|transformers|hugging ?face|\bhf\b|accelerate|unsloth|axolotl|llama-?factory|swift|fastchat|alpaca"
    r"|nanogpt|mingpt|pytorch|torch|ddp"
)
# Loops: `outputs = model(...); outputs.loss.backward()` holds the outputs, transformers' Trainer drops them.
# Losses: llm-foundry's MPT trains with flash-attention's fused cross-entropy (loss_fn: fused_crossentropy), torchtune's
# recipes with CEWithChunkedOutputLoss, litgpt's with lm_head_chunk_size: none of them keeps fp32 logits whole.
# PEFT's method_comparison/MetaMathQA/run.py calls empty_cache every ten steps (ACCELERATOR_EMPTY_CACHE_SCHEDULE).
# litgpt's GPT has a head of its own whatever the family (litgpt/model.py) and loads it whole (fabric.load_raw).
# Adapters and what stays unquantised: torchtune's `dtype: bf16` and litgpt's `bf16-true` hold all of it in bf16 (and
# litgpt's recipes set lora_dropout 0.05), peft's
# prepare_model_for_kbit_training in fp32.
# torchtitan/config_manager.py of 2024, pipeline_parallel_microbatches: as many as pipeline stages where none are asked.
FRAMEWORKS: Final = (
    # xtuner/model/sft.py: use_activation_checkpointing=True by default (the FLOP/s it prints count four passes);
    # EasyContext/train.py: model.gradient_checkpointing_enable(), whatever its arguments.
    FrameworkReading(r"easycontext|xtuner", "deepspeed", frozenset({"cp"}), recompute="full"),
    FrameworkReading(r"hf trainer \+ deepspeed", "deepspeed", _NONE, zero_stage=None, overlap=False),
    FrameworkReading(  # DeepSpeedExamples Megatron-LM-v1.1.5-ZeRO3: --partition-activations --checkpoint-in-cpu
        r"megatron.*zero-?3", "megatron-deepspeed", _3D, overlap=False, activation_offload=True
    ),
    FrameworkReading(r"megatron.*deepspeed|gpt-?neox", "megatron-deepspeed", _3D, overlap=False),
    FrameworkReading(
        r"torchtitan",
        "fsdp",
        _ALL,
        zero_stage=3,
        sequence_parallel=True,
        own_modules="custom",
        memory_unit="GiB",
        as_many_as_stages=True,
    ),
    FrameworkReading(r"automodel", "fsdp", _ALL, zero_stage=3, sequence_parallel=True, kin=True),
    FrameworkReading(r"megatron-bridge", "megatron", _ALL, zero_stage=1, sequence_parallel=True, reduce_bytes=2.0),
    FrameworkReading(r"nemo", "megatron", _ALL, zero_stage=1, sequence_parallel=True),
    FrameworkReading(
        r"megatron-core ci", "megatron", _ALL, recompute="none", overlap=False, dropout=True, functional_test=True
    ),
    FrameworkReading(r"megatron.*v[12]\.\d", "megatron-deepspeed", _3D, overlap=False),
    FrameworkReading(r"oneflow", "megatron-deepspeed", _3D),  # its actors reduce gradients while the backward runs
    FrameworkReading(r"primus|nanotron|mindspeed", "megatron", _ALL, overlap=False, kin=True),
    # internevo/solver/optimizer/hybrid_zero_optim.py reduces buckets while the backward runs (overlap_sync_grad).
    FrameworkReading(r"internevo|internlm", "megatron", _ALL, zero_stage=1, kin=True),
    FrameworkReading(r"megatron", "megatron", _ALL, overlap=False),
    FrameworkReading(
        r"lit-?gpt|lit-?llama",
        "fsdp",
        _NONE,
        zero_stage=3,
        recompute="none",
        pure=True,
        lora=(8, "qv"),
        cross_entropy="fused",
        tied=False,
        whole_load=True,
        own_modules="litgpt",
        rest_of_quantized=2.0,
        old_bitsandbytes=True,
        flat_units=True,
        loss_variant="wide_chunks",
        loss_variant_full="wide_split",
        adapter_dtype="model",
        adapter_dropout=0.05,
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
        own_modules="custom",
        paged_in_backward=True,
        loss_variant="chunked",
    ),
    FrameworkReading(
        r"composer|llm-foundry", "fsdp", _NONE, zero_stage=3, pure=True, cross_entropy="fused", reduce_bytes=2.0
    ),
    FrameworkReading(r"fsdp|fairscale", "fsdp", _NONE, zero_stage=3, kin=True),
    # JAX stacks shard parameters over all devices unless told otherwise (MaxText ici_fsdp_parallelism=-1).
    FrameworkReading(r"maxtext|levanter|\bjax\b|\bflax\b|paxml|olmo", "fsdp", _ALL, zero_stage=3, kin=True),
    FrameworkReading(r"deepspeed|zero", "deepspeed", _3D, zero_stage=None),
    FrameworkReading(r"gemini", "fsdp", _3D, zero_stage=3, kin=True),
    FrameworkReading(r"colossal-?ai", "megatron", _ALL, zero_stage=1, kin=True),  # HybridParallelPlugin(zero_stage=1)
    FrameworkReading(
        r"peft method_comparison", "ddp", _NONE, pure=True, lora=(8, "qv"), kept_outputs=True, empties_cache=True
    ),
    FrameworkReading(r"transformers \+ peft", "ddp", _NONE, lora=(8, "qv"), kept_outputs=True),
    FrameworkReading(_TRANSFORMERS, "ddp", _NONE, lora=(8, "qv"), kin=True),
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
    return FrameworkReading(
        "", backend, _ALL, zero_stage=None, kin=True
    ), f"framework: {row.framework} priced as {backend}"


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
