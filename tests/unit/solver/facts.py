"""A row of facts that every back end of its kind accepts, to be broken one rule at a time."""

from typing import Any

from cost_models.specs.choices import ATTENTIONS, COMPRESSIONS, CROSS_ENTROPIES, PRECISIONS

LISTS = {
    "attention": ATTENTIONS,
    "cross_entropy": CROSS_ENTROPIES,
    "gradient_compression": COMPRESSIONS,
    "precision": PRECISIONS,
}
BASE: dict[str, Any] = {
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "num_experts": 1,
    "layer_kind_count": 1,
    "tie_word_embeddings": False,
    "parallel_residual": False,
    "position_embedding": "rotary",
    "embedding_norm": False,
    "embedding_projection": False,
    "head_bias": False,
    "norms_per_layer": 2,
    "norm_affine": True,
    "qk_norm": "none",
    "softcap": False,
    "sequence_length": 4096,
    "method": "full",
    "optimizer": "adamw",
    "optimizer_in_backward": False,
    "gpus_per_node": 8,
    "link_domain": 8,
    "device_kind": "gpu",
    "device_vendor": "nvidia",
    "has_bf16": True,
    "has_fp8": True,
    "has_nvfp4": True,
    "tensor_parallel": 1,
    "sequence_parallel": False,
    "context_parallel": 1,
    "expert_parallel": 1,
    "expert_tensor_parallel": 1,
    "pipeline_parallel": 1,
    "virtual_pipeline_stages": 1,
    "data_parallel": 8,
    "micro_batch_size": 1,
    "gradient_accumulation_steps": 8,
    "zero_stage": 0,
    "precision": "bf16",
    "attention": "flash",
    "cross_entropy": "fused",
    "gradient_compression": "none",
    "recompute_interval": 1,
    "optimizer_offload": False,
    "parameter_offload": False,
    "activation_offload": False,
    "communication_overlap": True,
    "expert_overlap": False,
    "fused_kernels": True,
    "cuda_graph": False,
    "compile": False,
}
OWN: dict[str, dict[str, Any]] = {
    "deepspeed": {},
    "megatron": {},
    "fsdp": {"zero_stage": 3},
    "ddp": {},
    "megatron-deepspeed": {"cross_entropy": "vocab_parallel"},
}


def facts(backend: str, **changes: Any) -> dict[str, Any]:
    """The base row of a back end with changes, choices as indices."""
    row = {**BASE, **OWN[backend], **changes}
    return {key: LISTS[key].index(value) if key in LISTS else value for key, value in row.items()}
