"""What the common header lacks, read from the free text of `notes`.

Write `key=value` tokens of `TOKENS` anywhere in the notes, separated by spaces, commas or semicolons. The spellings in
which published tables say the same are read too (`PHRASES`). Any other text is ignored.
"""

import re
from collections.abc import Mapping
from typing import Final

TOKENS: Final[Mapping[str, str]] = {
    "sequence_parallel": "yes or no: activations between tensor-parallel regions are split",
    "activation": "function of the feed-forward: gelu, silu, relu2",
    "gated": "yes or no: the feed-forward has a gate matrix",
    "tied": "yes or no: input and output embeddings share one matrix",
    "normalization": "rmsnorm or layernorm",
    "position_embedding": "rotary, learned, alibi or none",
    "head_dim": "width of one attention head",
    "experts": "experts of a mixture-of-experts layer",
    "experts_per_token": "experts that see a token",
    "expert_ffn": "width of one expert",
    "shared_expert_ffn": "width of all shared experts together",
    "moe_layers": "which layers are mixtures: all, last:N (the N last ones) or every:N",
    "dense_ffn": "width of the feed-forward in layers that are no mixture",
    "expert_tensor_parallel": "tensor-parallel degree of the experts",
    "q_lora_rank": "MLA: rank of the query projection",
    "kv_lora_rank": "MLA: rank of the key-value projection",
    "qk_nope_head_dim": "MLA: width of a head without position",
    "qk_rope_head_dim": "MLA: width of a head with position",
    "v_head_dim": "MLA: width of a value head",
    "attention": "flash, sdpa or eager",
    "cross_entropy": "eager, fused, vocab_parallel or compiled",
    "lora_rank": "rank of the adapters",
    "lora_targets": "all-linear, attention, qv, or module names joined by +",
    "train_embeddings": "yes or no: embeddings are trained beside the adapters",
    "double_quantization": "yes or no: the scales of a 4-bit base are quantised too",
    "peft_type": "kind of adapter; only LORA and full are planned",
    "compile": "yes or no: torch.compile",
    "cuda_graph": "yes or no",
    "communication_overlap": "yes or no: gradients are exchanged while the backward pass runs",
    "expert_overlap": "yes or no: tokens travel to experts and back beside the compute of another micro-batch",
    "memory_unit": "GB (10^9) or GiB (2^30): unit of peak_mem_gb",
    "memory_ranks": "all, or last (the last pipeline stage only)",
    "memory_includes": "eval: the peak covers evaluation",
    "lengths": "fixed or variable: variable lengths make no step time",
    "longest_sample": "yes: the sequence length is the longest sample's, and other batches are far shorter",
    "padded": "yes or no: batches carry a padding mask",
    "first_stage_layers": "layers of the first pipeline stage; the others share the rest",
    "stage_layers": "layers of every pipeline stage, joined by +",
    "adapter_dtype": "fp32 or model",
    "architecture": "hybrid: has layers that are no transformer layers",
    "degrees": "inconsistent: the printed degrees contradict each other",
    "deterministic": "yes or no: deterministic kernels with their larger workspaces",
    "dropout": "probability of dropout, hidden and attention; 0 keeps no masks",
    "transformer_engine": "yes or no: Megatron's layers are Transformer Engine's",
    "accumulation_fusion": "yes or no: weight gradients are added to the fp32 buffer inside the product",
    "deferred_head_gradient": "yes or no: the head's weight gradient is computed after backward, from kept logits",
    "optimizer_instances": "groups of data-parallel ranks that hold the sharded optimizer once each",
    "kept_outputs": "yes or no: the loop holds the model's outputs, and with them the logits, through backward",
    "offloaded_modules": "yes: activations of some modules go to the host",
    "allocated": "peak allocated beside a printed peak of another kind, in memory_unit",
    "process": "the same for what the whole process holds",
    "optimizer_in_backward": "yes or no: each gradient is applied and freed inside backward",
    "expandable_segments": "yes or no: the allocator's segments grow",
    "pure_low_precision": "yes: weights, gradients and optimizer states all in the 16-bit dtype",
}
"""The published list."""

_YES, _NO = "yes", "no"
PHRASES: Final[tuple[tuple[str, str, str], ...]] = (
    ("sequence_parallel", r"\bsequence-parallel\b(?! on \(no)", _YES),
    ("sequence_parallel", r"sequence-parallel on \(no effect", _YES),
    ("tied", r"\buntie-embeddings-and-output-weights\b|\buntied embeddings\b", _NO),
    ("tied", r"(?<!un)\btied embeddings\b", _YES),
    ("activation", r"\bsquared-relu\b", "relu2"),
    ("activation", r"\bswiglu\b", "silu"),
    ("gated", r"\bswiglu\b", _YES),
    ("head_dim", r"\bkv-channels=(\d+)", ""),
    ("experts", r"\bMoE experts=(\d+)", ""),
    ("experts_per_token", r"\btopk=(\d+)", ""),
    ("expert_ffn", r"\bmoe-ffn=(\d+)", ""),
    ("shared_expert_ffn", r"\bshared-expert=(\d+)", ""),
    ("moe_layers", r"layer-freq=\(\[0\]\*\d+\+\[1\]\*(\d+)\)", "last:"),
    ("expert_tensor_parallel", r"\betp=(\d+)", ""),
    ("experts", r"\bMoE: (\d+) experts", ""),
    ("experts_per_token", r"\bexperts top-(\d+)", ""),
    ("expert_ffn", r"\bmoe_ffn (\d+)", ""),
    ("shared_expert_ffn", r"\bshared-expert ffn (\d+)", ""),
    ("dense_ffn", r"first layers? dense \(ffn (\d+)\)", ""),
    ("q_lora_rank", r"\bq_lora=(\d+)", ""),
    ("kv_lora_rank", r"\bkv_lora=(\d+)", ""),
    ("qk_nope_head_dim", r"\bqk_head=(\d+)", ""),
    ("qk_rope_head_dim", r"\bqk_rope=(\d+)", ""),
    ("v_head_dim", r"\bv_head=(\d+)", ""),
    ("attention", r"attention-backend=unfused", "eager"),
    ("attention", r"attention-backend=(?:flash|fused)|\buse-flash-attn\b", "flash"),
    ("cross_entropy", r"cross-entropy-fusion-impl[= ]te\b", "fused"),
    ("cross_entropy", r"\bcross-entropy-loss-fusion\b", "compiled"),
    ("cross_entropy", r"loss_parallel|loss-parallel", "vocab_parallel"),
    ("deterministic", r"\bdeterministic-mode\b", _YES),
    ("transformer_engine", r"transformer-impl=local", _NO),
    ("transformer_engine", r"transformer-impl=transformer_engine", _YES),
    ("accumulation_fusion", r"\bno-gradient-accumulation-fusion\b", _NO),
    ("deferred_head_gradient", r"defer-embedding-wgrad-compute", _YES),
    ("optimizer_instances", r"num-distributed-optimizer-instances=(\d+)", ""),
    ("offloaded_modules", r"fine-grained-activation-offloading", _YES),
    ("lora_rank", r"LoRA r=(\d+)", ""),
    ("lora_rank", r"\brank[= ]?(\d+)\b", ""),
    ("lora_targets", r"LoRA r=\d+ on q,k,v,o_proj", "attention"),
    ("adapter_dtype", r"adapters fp32", "fp32"),
    ("double_quantization", r"without double quant|bnb\.nf4(?!-dq)", _NO),
    ("optimizer_in_backward", r"technique row: '\+ (?:Fuse optimizer step into backward|8-bit AdamW)'", _YES),
    ("peft_type", r"technique (adapter\w*)", ""),
    ("compile", r"torch\.compile=yes|\btorch\.compile\b(?!=)", _YES),
    ("expandable_segments", r"expandable_segments[:=] ?True", _YES),
    ("cuda_graph", r"cuda-graph-impl=(?!none)|external-cuda-graph|enable-cuda-graph", _YES),
    ("communication_overlap", r"\boverlap-grad-reduce\b", _YES),
    ("communication_overlap", r"no TP/PP/DP overlap", _NO),
    ("memory_ranks", r"on the LAST rank only", "last"),
    ("memory_unit", r"\bGB ?= ?1e9|/1e9\b", "GB"),
    ("memory_unit", r"\bGiB\b", "GiB"),
    ("memory_includes", r"over train\+eval", "eval"),
    ("lengths", r"variable lengths|lengths? [^;]*variable|real tokens|mean length is far shorter", "variable"),
    ("longest_sample", r"\bLONGEST\b", _YES),
    ("padded", r"padded-to-longest", _YES),
    ("first_stage_layers", r"decoder-first-pipeline-num-layers=(\d+)", ""),
    ("pipeline_layout", r"pipeline-model-parallel-layout=([^\s;]+)", ""),
    ("architecture", r"hybrid-(?:override|layer)-pattern=", "hybrid"),
    ("mtp_layers", r"mtp-num-layers=(\d+)", ""),
    ("degrees", r"!= n_gpus=|INCONSISTENT as printed", "inconsistent"),
)
"""Fact, pattern, value: the group of the pattern behind the value where the pattern has one."""

_PATTERNS: Final = tuple((fact, re.compile(pattern), value) for fact, pattern, value in PHRASES)
_TOKEN: Final = re.compile(r"(?<![\w.-])([a-z][a-z_]*)=([^\s;,]+)")


def read_notes(text: str) -> dict[str, str]:
    """The facts that a note states; tokens win over phrases, earlier phrases over later ones."""
    facts: dict[str, str] = {}
    for fact, pattern, value in _PATTERNS:
        if fact in facts:
            continue
        match = pattern.search(text)
        if match:
            facts[fact] = value + match.group(1) if match.groups() else value
    for key, value in _TOKEN.findall(text):
        if key in TOKENS:
            facts[key] = value
    return facts
