"""How models laid out as Hugging Face's Llama split: `model.layers` of attention and MLP, embedding, norm, head."""

from typing import Any

from executor.errors import PlanRefused


def blocks(model: Any) -> Any:
    """The transformer layers."""
    return model.model.layers


def tie_again(model: Any) -> None:
    """Give head and embedding one weight once more after each was replaced by its shard."""
    if model.config.tie_word_embeddings:
        model.lm_head.weight = model.model.embed_tokens.weight


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


def recompute_blocks(layers: Any, full: int) -> None:
    """Recompute the first `full` of a stage's layers in its backward pass."""
    from functools import partial

    from torch.utils.checkpoint import checkpoint

    for index, layer in enumerate(layers):
        layer.gradient_checkpointing = index < full
        layer._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False)
