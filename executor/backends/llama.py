"""How models laid out as Hugging Face's Llama split: `model.layers` of attention and MLP, embedding, norm, head."""

import zlib
from typing import Any

from executor.errors import PlanRefused


def blocks(model: Any) -> Any:
    """The transformer layers."""
    return model.model.layers


def tie_again(model: Any) -> None:
    """Give head and embedding one weight once more after each was replaced by its shard."""
    if model.config.tie_word_embeddings:
        model.lm_head.weight = model.model.embed_tokens.weight


def materialise(module: Any, model: Any, device: Any) -> Any:
    """Give what of `model` lies in `module` memory on `device`, and weights where it is on the meta device.

    Each weight is drawn from torch's seed and its own name, so that a process that holds a part of a model holds the
    same numbers as one that holds it all. Source: transformers `PreTrainedModel._init_weights`.
    """
    import torch

    if not any(parameter.is_meta for parameter in module.parameters()):
        return module.to(device)
    module.to_empty(device=device)
    for owner in module.modules():
        if isinstance(owner, type(model.model.rotary_emb)):  # its frequencies are computed, not drawn
            with torch.device(device):
                owner.__init__(model.config)
    ours = {id(parameter) for parameter in module.parameters()}
    generator = torch.Generator(device=device)
    for name, parameter in model.named_parameters():
        if id(parameter) not in ours:
            continue
        if parameter.dim() == 1:
            torch.nn.init.ones_(parameter)
            continue
        generator.manual_seed((torch.initial_seed() + zlib.crc32(name.encode())) % 2**63)
        torch.nn.init.normal_(parameter, std=model.config.initializer_range, generator=generator)
    return module


def check_stages(model: Any) -> None:
    """Hold a model against what a pipeline here can split.

    Raises:
        PlanRefused: one weight would be on two stages.
    """
    if model.config.tie_word_embeddings:
        raise PlanRefused("tied embeddings would lie on two stages, whose gradients the pipelines here do not sum")


def stage_module(model: Any, first: int, last: int) -> Any:
    """Layers `first` to `last` (exclusive); token ids in at the start, logits out at the end, hidden states between."""
    import torch

    class Stage(torch.nn.Module):  # type: ignore[misc]  # torch's types are not followed
        def __init__(self) -> None:
            super().__init__()
            inner = model.model
            self.embed_tokens = inner.embed_tokens if first == 0 else None
            self.layers = torch.nn.ModuleList(inner.layers[first:last])
            self.rotary_emb = inner.rotary_emb
            ends = last == len(inner.layers)
            self.norm: Any = inner.norm if ends else None
            self.lm_head: Any = model.lm_head if ends else None

        def forward(self, values: Any) -> Any:
            """Token ids or hidden states."""
            hidden = values if self.embed_tokens is None else self.embed_tokens(values)
            for layer in self.layers:
                hidden = run_block(layer, self.rotary_emb, hidden, hidden.shape[1])
            return hidden if self.lm_head is None else self.lm_head(self.norm(hidden))

    return Stage()


def forget_parts(model: Any) -> None:
    """Let go of what the stages have taken over: a process then holds its own stages alone."""
    import torch

    model.model.layers = torch.nn.ModuleList()
    model.model.embed_tokens = model.model.norm = model.lm_head = None


def run_block(block: Any, rotary: Any, hidden: Any, sequence_length: int) -> Any:
    """One layer with causal attention over whole sequences: SDPA needs no mask for it."""
    import torch

    positions = torch.arange(sequence_length, device=hidden.device).unsqueeze(0)
    output = block(
        hidden, attention_mask=None, position_ids=positions, position_embeddings=rotary(hidden, position_ids=positions)
    )
    return output[0] if isinstance(output, tuple) else output  # transformers before 4.48 return tuples


def recompute_blocks(layers: Any, full: int, selective: int = 0) -> None:
    """Recompute the first `full` of a stage's layers in its backward pass, and of the next `selective` a part."""
    from functools import partial

    from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

    whole = partial(checkpoint, use_reentrant=False)
    part = partial(whole, context_fn=lambda: create_selective_checkpoint_contexts(_EverySecondProduct()))
    for index, layer in enumerate(layers):
        layer.gradient_checkpointing = index < full + selective
        layer._gradient_checkpointing_func = whole if index < full else part


class _EverySecondProduct:
    """Keeps every second matrix product of a layer and what the attention kernel returns; the rest is computed again.

    Source: torchtitan `distributed/activation_checkpoint.py`, selective by "op".
    """

    def __init__(self) -> None:
        """Forward and its repetition count apart."""
        self._products = {False: 0, True: 0}

    def __call__(self, context: Any, operator: Any, *_: Any, **__: Any) -> Any:
        """What becomes of an operator's output."""
        import torch
        from torch.utils.checkpoint import CheckpointPolicy

        if operator in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default):
            self._products[context.is_recompute] += 1
            kept = self._products[context.is_recompute] % 2 == 1
        else:
            kept = "_scaled_dot_product_" in operator.name()
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE
