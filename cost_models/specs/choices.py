"""The closed lists a configuration chooses from. A `Strategy` holds an index into them; a `Configuration` the name."""

from typing import Final, Literal, get_args

Backend = Literal["deepspeed", "megatron", "fsdp", "ddp", "megatron-deepspeed"]
Precision = Literal["bf16", "fp16", "fp32", "fp8", "nvfp4"]
Attention = Literal["flash", "sdpa", "eager"]
CrossEntropy = Literal["eager", "fused", "vocab_parallel"]
Compression = Literal["none", "fp16", "bf16", "int8", "powersgd", "one-bit", "top-k"]
Optimizer = Literal["adamw", "adamw-8bit", "adafactor", "sgd", "lion", "muon", "1-bit-adam"]
Method = Literal["full", "lora", "qlora"]
Recompute = Literal["none", "selective", "full"]
ObjectiveName = Literal["throughput", "memory", "gpus", "cost", "cost_per_token", "energy"]

BACKENDS: Final[tuple[Backend, ...]] = get_args(Backend)
MAINTAINED_BACKENDS: Final[tuple[Backend, ...]] = tuple(name for name in BACKENDS if name != "megatron-deepspeed")
"""What `backend: any` means. Megatron-DeepSpeed gets no releases any more; it is planned for when named."""
PRECISIONS: Final[tuple[Precision, ...]] = get_args(Precision)
ATTENTIONS: Final[tuple[Attention, ...]] = get_args(Attention)
CROSS_ENTROPIES: Final[tuple[CrossEntropy, ...]] = get_args(CrossEntropy)
COMPRESSIONS: Final[tuple[Compression, ...]] = get_args(Compression)
OPTIMIZERS: Final[tuple[Optimizer, ...]] = get_args(Optimizer)
METHODS: Final[tuple[Method, ...]] = get_args(Method)
RECOMPUTES: Final[tuple[Recompute, ...]] = get_args(Recompute)
"""Order matters: none < selective < full in memory saved; index 0, 1, 2 on every recompute axis."""

OBJECTIVES: Final[tuple[ObjectiveName, ...]] = get_args(ObjectiveName)
SPARING: Final[frozenset[ObjectiveName]] = frozenset({"gpus", "cost", "cost_per_token", "energy"})
"""Objectives that fewer devices may serve better: the answer may then leave a part of the cluster idle."""

NARROW: Final[frozenset[Precision]] = frozenset({"fp8", "nvfp4"})
"""Matrix products of linear layers in fewer than 16 bits; everything else of such a run has 16."""

LOSSLESS: Final[frozenset[Compression]] = frozenset({"none"})
