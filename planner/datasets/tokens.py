"""Tokens of the notes that say what nobody can read: dropped, they would make another run of a row."""

import re
from collections.abc import Mapping
from typing import Final

from cost_models.specs.choices import ATTENTIONS

_SWITCHES: Final = (
    "sequence_parallel", "gated", "tied", "train_embeddings", "double_quantization", "compile", "cuda_graph",
    "communication_overlap", "expert_overlap", "longest_sample", "padded", "deterministic", "transformer_engine",
    "accumulation_fusion", "deferred_head_gradient", "kept_outputs", "optimizer_in_backward", "expandable_segments",
    "pure_low_precision",
)  # fmt: skip
_COUNTS: Final = (
    "head_dim", "experts", "experts_per_token", "expert_ffn", "shared_expert_ffn", "dense_ffn",
    "expert_tensor_parallel", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
    "lora_rank", "first_stage_layers", "optimizer_instances",
)  # fmt: skip
_SPELLINGS: Final[Mapping[str, str]] = {
    **dict.fromkeys(_SWITCHES, "yes|no|true|false|on|off|1|0"),
    **dict.fromkeys(_COUNTS, r"\d{1,9}"),
    "attention": "|".join(ATTENTIONS),
    "moe_layers": r"all|(?:last|every):\d{1,9}",
    "stage_layers": r"\d{1,9}(?:\+\d{1,9})*",
    "adapter_dtype": "fp32|model",
    "memory_unit": "gb|gib",
}
"""What the value of a token may be, as a pattern; tokens that are not named take any text."""


def unreadable_token(facts: Mapping[str, str]) -> str:
    """The first fact, as `key=value`, whose value is none that it may have; "" where all can be read."""
    for key, value in facts.items():
        if key in _SPELLINGS and not re.fullmatch(_SPELLINGS[key], value, re.IGNORECASE):
            return f"{key}={value[:40]}"
    return ""
