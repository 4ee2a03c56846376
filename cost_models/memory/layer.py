"""A whole layer of transformers' modules on a tape of sizes.

Source: transformers `models/*/modeling_*.py`, each architecture's decoder layer.
"""

from cost_models.memory import operators as op
from cost_models.memory.blocks import Variant
from cost_models.memory.feed_forward import FeedForward
from cost_models.memory.tape import SEQUENCE, Tape, Value, width
from cost_models.specs.architecture import ArchitectureFacts
from cost_models.specs.model import LayerKind, ModelSpec


class Layer(FeedForward):
    """Both blocks, their norms and the residual stream."""

    def feed_forward(self, x: Value, kind: LayerKind) -> Value:
        """The dense or the sparse block of a layer's kind."""
        if kind.mlp == "moe":
            return self.experts(x)
        return self.mlp(x, self.model.intermediate_size, gated=self.model.gated_mlp)

    def layer(self, x: Value, kind: LayerKind) -> Value:
        """The whole layer on its input."""
        tape, style, rows = self.tape, self.facts.residual, width(1.0, SEQUENCE)
        if style == "parallel":
            return self._parallel(x, kind)
        before, after = style in ("pre", "sandwich"), style in ("post", "sandwich")
        for block in (self.attention, lambda v: self.feed_forward(v, kind)):
            normed = self.norm(x, rows) if before else x
            out = block(normed)
            tape.until_now(normed)
            out = self._dropped(self.norm(out, rows) if after else out)
            x = op.add(tape, x, op.scale(tape, out) if self.facts.scaled_residual else out)
        return x

    def _parallel(self, x: Value, kind: LayerKind) -> Value:
        tape, rows = self.tape, width(1.0, SEQUENCE)
        first = self.norm(x, rows)
        attended = self.attention(first)
        second = self.norm(x, rows) if self.model.norms_per_layer > 1 else first
        fed = self.feed_forward(second, kind)
        return op.add(tape, op.add(tape, self._dropped(fed), self._dropped(attended)), x)

    def _dropped(self, x: Value) -> Value:
        """A residual branch under dropout."""
        if not self.variant.dropout:
            return x
        self.tape.part = "norm"
        return op.dropout(self.tape, x)


def written(
    model: ModelSpec, facts: ArchitectureFacts, variant: Variant, kind: LayerKind, *, first: bool = False
) -> tuple[Tape, Value, Value]:
    """One layer's tape, its input and its output. Nothing below the `first` wants a gradient."""
    blocks = Layer(model, facts, variant)
    stream = 4.0 if variant.autocast else variant.itemsize
    x = blocks.tape.new(width(model.hidden_size, SEQUENCE), stream, wanted=not first)
    x.storage.part, x.storage.operator = "boundary", "layer_input"
    return blocks.tape, x, blocks.layer(x, kind)
