"""Free text of published tables -> the closed names of a configuration. The first pattern that occurs decides."""

import re
from typing import Final

from cost_models.specs.choices import ATTENTIONS, Attention, Backend, Method, Optimizer, Precision, Recompute
from planner.datasets.frameworks import FrameworkReading
from planner.datasets.unusable import Unusable
from planner.measurement import Measurement

_PRECISIONS: Final[tuple[tuple[str, Precision], ...]] = (
    (r"nvfp4|\bfp4\b", "nvfp4"),
    (r"fp8|float8", "fp8"),
    (r"bf16|bfloat16", "bf16"),
    (r"fp16|float16|half|^16\b|\bo[12]\b", "fp16"),
    (r"fp32|float32|tf32", "fp32"),
)
# Optimizers by what they keep: Adam's two moments, one moment as Lion, factored or projected moments as Adafactor.
_OPTIMIZERS: Final[tuple[tuple[str, Optimizer], ...]] = (
    (r"1bit|onebit", "1-bit-adam"),
    (r"muon", "muon"),
    (r"8bit", "adamw-8bit"),
    (r"adafactor", "adafactor"),
    (r"came\b|galore|apollo", "adafactor"),
    (r"lion|rmsprop|adagrad|adam-?mini", "lion"),
    (r"sgd", "sgd"),
    (r"adam|lamb|adan\b|prodigy|distributed", "adamw"),
)


def precision_of(row: Measurement) -> tuple[Precision, str]:
    """The precision, and what had to be assumed for it ("" for nothing).

    Raises:
        Unusable: blank or unknown.
    """
    text = row.precision.lower()
    if not text:
        raise Unusable("precision not stated")
    for pattern, name in _PRECISIONS:
        if re.search(pattern, text):
            return name, ""
    if re.search(r"mixed|amp\b", text) or (method_of(row) == "qlora" and re.search(r"4[- ]?bit|nf4|int4", text)):
        assumed: Precision = "fp16" if _BEFORE_AMPERE.search(row.gpu) else "bf16"
        return assumed, f"dtype: {row.precision} does not say which, {assumed} assumed"
    raise Unusable(f"precision not known: {row.precision}")


_BEFORE_AMPERE: Final = re.compile(r"v100|\bt4|p100|p40|titan|rtx-? ?(?:20|6000|8000)", re.IGNORECASE)
"""Devices without bf16 products."""


def is_pure(row: Measurement, reading: FrameworkReading) -> bool:
    """Whether no fp32 copy of the weights exists: said outright, or what a bare 16-bit name means to the framework."""
    text = row.precision.lower()
    if re.search(r"mixed|amp|fp32 master|fp8|float8|fp4", text):
        return False
    stated = flag(row, "pure_low_precision")
    if stated is not None:
        return stated
    return bool(re.search(r"true|pure", text)) or reading.pure or row.method.lower() in {"lora", "qlora"}


_RECOMPUTES: Final[tuple[tuple[str, Recompute], ...]] = (
    (r"selective|sac\b|per[- ]?op|op\b|attn|attention|core|partial|moe|mlp|mla", "selective"),
    (r"none|no\b|false|off|disabled|n\b|0$", "none"),
    (
        r"full|yes|true|on\b|y$|1$|enabled|all\b|uniform|block|gradient|activation|per[- ]?layer|ac\b|ckpt|checkpoint",
        "full",
    ),
)
"""How tables say it; the first that the text begins with."""


def recompute_of(row: Measurement, reading: FrameworkReading) -> tuple[Recompute, str]:
    """How much of the forward pass is repeated, and what had to be assumed for it."""
    text = row.recompute.lower()
    for pattern, name in _RECOMPUTES:
        if re.match(pattern, text):
            return name, ""
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
    if re.match(r"yes|true|fused|flash|fa[234]?\b|cudnn|te\b|triton|ring|cutlass|aiter|ck\b|v?[1-4](?:\.|$)", text):
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
    if re.match(_WHOLE, text):
        return "full"
    if re.search(_ADAPTERS, text):
        raise Unusable("adapter is not LoRA")
    raise Unusable(f"method not known: {row.method}")


_WHOLE: Final = r"$|(?:continued |continual )?pre-?train|sft\b|ft\b|fine-?tun|supervised|cpt\b|train"
_ADAPTERS: Final = r"dora|ia3|prefix|p-?tuning|prompt|vera|oft|adapter|lokr|loha"


def runs_in_backward(row: Measurement, reading: FrameworkReading) -> bool:
    """Whether each gradient is applied and freed inside backward (torchtune `optimizer_in_bwd`)."""
    text = row.optimizer.lower()
    paged = reading.paged_in_backward and "paged" in text and row.n_gpus == 1
    stated = flag(row, "optimizer_in_backward") is True
    return method_of(row) == "full" and (paged or stated or "backward" in text)


def offload_of(row: Measurement) -> tuple[bool, bool, bool]:
    """Whether optimizer states, parameters and activations live on the host.

    A bare `cpu` is the optimizer's, as in ZeRO-Offload, and the parameters' too where they are sharded.

    Raises:
        Unusable: neither says what is offloaded, nor that nothing is.
    """
    text = row.offload.lower()
    if re.search(r"zero-? ?3 \+ full offload", row.notes.lower()):
        text += " optimizer parameters"
    parts = "optim" in text, "param" in text, "activation" in text
    if any(parts) or re.match(_NOT_OFFLOADED, text):
        return parts
    if not re.search(r"cpu|host|nvme|yes|true|zero|infinity", text):
        raise Unusable(f"offload not known: {row.offload}")
    return True, row.zero_stage == 3, False


_NOT_OFFLOADED: Final = r"$|no|false|off|disabled|0$|-+$|\?$|unknown|n/?a\b"


def flag(row: Measurement, fact: str) -> bool | None:
    """A yes-or-no fact of the notes; None where they say nothing."""
    value = row.facts.get(fact, "").lower()
    return True if value in {"yes", "true", "1", "on"} else False if value in {"no", "false", "0", "off"} else None
