"""Tensor parallelism by DTensor: columns of the projections in, rows of those out, the vocabulary over all ranks.

arXiv:1909.08053 section 3; with sequence parallelism arXiv:2205.05198 section 4.2: norms and residuals hold a part of
the sequence.
"""

from typing import Any

from executor.errors import PlanRefused


def parallelize(module: Any, layers: Any, config: Any, mesh: Any, *, inner: str, sequence_parallel: bool) -> None:
    """Shard a model's or a stage's matrices over the one dimension of `mesh`; `inner` leads to embedding and norm.

    Raises:
        PlanRefused: heads do not divide.
    """
    from torch.distributed.tensor.parallel import parallelize_module

    for name in ("num_attention_heads", "num_key_value_heads"):
        if getattr(config, name) % mesh.size():
            raise PlanRefused(f"tensor_parallel {mesh.size()} does not divide {name} {getattr(config, name)}")
    for layer in layers:
        parallelize_module(layer, mesh, _block_plan(sequence_parallel))
    present = dict(module.named_modules())
    ends = {name: style for name, style in _ends_plan(inner, sequence_parallel).items() if present.get(name)}
    parallelize_module(module, mesh, ends)
    if sequence_parallel:
        module.register_forward_pre_hook(_with_positions, with_kwargs=True)


def _with_positions(module: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """State the positions: the embedding hands on a part of the sequence, from which they cannot be counted."""
    import torch

    tokens = named["input_ids"]
    return arguments, {**named, "position_ids": torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(0)}


def _block_plan(sequence_parallel: bool) -> dict[str, Any]:
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
    )

    out = {"output_layouts": Shard(1)} if sequence_parallel else {}
    plan: dict[str, Any] = {
        **{f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"},
        **{f"mlp.{name}_proj": ColwiseParallel() for name in ("gate", "up")},
        "self_attn.o_proj": RowwiseParallel(**out),
        "mlp.down_proj": RowwiseParallel(**out),
    }
    if sequence_parallel:
        plan |= {
            "input_layernorm": SequenceParallel(),
            "post_attention_layernorm": SequenceParallel(),
            "self_attn": PrepareModuleInput(
                input_kwarg_layouts={"hidden_states": Shard(1)},
                desired_input_kwarg_layouts={"hidden_states": Replicate()},
            ),
            "mlp": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        }
    return plan


def _ends_plan(inner: str, sequence_parallel: bool) -> dict[str, Any]:
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel

    between = Shard(1) if sequence_parallel else Replicate()
    plan: dict[str, Any] = {
        f"{inner}embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
        "lm_head": ColwiseParallel(input_layouts=between, output_layouts=Replicate()),
    }
    return plan | ({f"{inner}norm": SequenceParallel()} if sequence_parallel else {})
