"""Feed-forward blocks of transformers' modules on a tape of sizes: activations, dense blocks, routed experts.

Source: transformers `activations.py`, `models/*/modeling_*.py`, `integrations/moe.py` (grouped_mm).
"""

from cost_models.memory import operators as op
from cost_models.memory.attention import Attention
from cost_models.memory.tape import EXPERT, ROUTED, SEQUENCE, TENSOR, WHOLE, Value, Width, width


class FeedForward(Attention):
    """The feed-forward block of a layer."""

    def activation(self, x: Value) -> Value:
        """The activation by its name in transformers' `activations.py`."""
        if self.facts.mlp_gelu == "own_function":
            return op.pointwise(self.tape, x, keeps="input", temporaries=6)
        spelled_out = getattr(self, f"_{self.model.activation}", None)
        result = op.pointwise(self.tape, x, keeps="input") if spelled_out is None else spelled_out(x)
        return result

    def _gelu_new(self, x: Value) -> Value:
        tape = self.tape
        half = op.scale(tape, x)
        inner = op.add(tape, x, op.scale(tape, op.pointwise(tape, x, keeps="input", temporaries=2)))
        tanh = op.pointwise(tape, op.scale(tape, inner), keeps="output")
        return op.mul(tape, half, op.shift(tape, tanh), "activation")

    def _gelu_fast(self, x: Value) -> Value:
        tape = self.tape
        half, first = op.scale(tape, x), op.scale(tape, x)
        second = op.shift(tape, op.mul(tape, op.scale(tape, x), x, "activation"))
        tanh = op.pointwise(tape, op.mul(tape, first, second, "activation"), keeps="output")
        return op.mul(tape, half, op.shift(tape, tanh), "activation")

    def _relu(self, x: Value) -> Value:
        return op.pointwise(self.tape, x, keeps="output")

    def _relu2(self, x: Value) -> Value:
        return op.square(self.tape, self._relu(x))

    def _xielu(self, x: Value) -> Value:
        """Both halves of arXiv:2411.13010, equation 12, and the choice between them, in elementary operators."""
        tape, trained = self.tape, self.trained
        scaled = op.weighted(tape, x, trained=trained)
        positive = op.add(tape, op.mul(tape, scaled, x, "activation"), op.scale(tape, x))
        exponential = op.pointwise(
            tape, op.pointwise(tape, x, keeps="input", temporaries=1), keeps="output", temporaries=1
        )
        difference = op.add(tape, exponential, op.negative(tape, x))
        negative = op.add(tape, op.weighted(tape, difference, trained=trained), op.scale(tape, x))
        return op.where(tape, positive, negative)

    def _quick_gelu(self, x: Value) -> Value:
        return op.mul(self.tape, x, op.pointwise(self.tape, op.scale(self.tape, x), keeps="output"), "activation")

    def mlp(self, x: Value, inner: float, *, gated: bool, prefix: str = "") -> Value:
        """A dense feed-forward block."""
        tape, columns = self.tape, width(inner, TENSOR)
        tape.part = "norm"
        if gated and self.facts.fused_gate:
            joined = self.linear(x, f"{prefix}gate_proj", 2 * columns)
            tape.part = "mlp"
            gate, up = op.split(tape, joined, [columns, columns])
            hidden = op.mul(tape, up, self.activation(gate), "activation")
        elif gated:
            gate = self.linear(x, f"{prefix}gate_proj", columns)
            tape.part = "mlp"
            gate = self.activation(gate)
            tape.part = "norm"
            up = self.linear(x, f"{prefix}up_proj", columns)
            tape.part = "mlp"
            hidden = op.mul(tape, gate, up, "activation")
        else:
            up = self.linear(x, f"{prefix}up_proj", columns)
            tape.part = "mlp"
            hidden = self.activation(up)
        tape.part = "mlp"
        return self.linear(hidden, f"{prefix}down_proj", width(self.model.hidden_size, SEQUENCE))

    def experts(self, x: Value) -> Value:
        """Router, grouped expert products and the shared expert. Source: `integrations/moe.py`, grouped_mm."""
        model, tape = self.model, self.tape
        moe = model.moe
        assert moe is not None
        shared: Value | None = None
        early = moe.shared_expert_gate
        if moe.shared_expert_intermediate_size and early:
            shared = self._shared(x)
        tape.part = "router"
        weights = self._routes(x)
        tape.part = "experts"
        routes = float(moe.num_experts_per_tok)
        hidden, inner = width(routes * model.hidden_size, ROUTED), width(routes * moe.moe_intermediate_size, EXPERT)
        weights = op.pointwise(tape, weights, keeps="input", name="routes")
        selected = self._gathered(x, hidden)
        if moe.gated_experts:
            joined = self._grouped(selected, "experts.up_proj", 2 * inner)
            product = self._gate(joined, inner)
        else:
            product = self.activation(self._grouped(selected, "experts.up_proj", inner))
        out = self._grouped(product, "experts.down_proj", hidden)
        weighted = op.by_rows(tape, out, weights, "experts")
        summed = self._summed(weighted, width(model.hidden_size, SEQUENCE))
        summed = op.cast(tape, summed, x.itemsize)
        if moe.shared_expert_intermediate_size and not early:
            shared = self._shared(x)
        return summed if shared is None else op.add(tape, summed, shared)

    def _shared(self, x: Value) -> Value:
        moe = self.model.moe
        assert moe is not None
        out = self.mlp(x, moe.shared_expert_intermediate_size, gated=moe.gated_experts, prefix="shared_expert.")
        if not moe.shared_expert_gate:
            return out
        gate = self.linear(x, "shared_expert_gate", width(1.0, WHOLE))
        return op.by_rows(self.tape, out, op.pointwise(self.tape, gate, keeps="output"), "mlp")

    def _routes(self, x: Value) -> Value:
        model, tape, kind = self.model, self.tape, self.facts.router
        moe = model.moe
        assert moe is not None
        every, chosen = width(moe.num_experts, WHOLE), width(moe.num_experts_per_tok, WHOLE)
        wide = kind in ("softmax_wide", "sigmoid_wide")
        tape.part = "norm" if not wide else "router"
        source = op.cast(tape, x, 4.0) if wide else x
        trained = self.trained or "router" in self.variant.targets  # an adapter is added to the weight
        logits = op.product(tape, source, "router", every, trained=trained, name="router_input")
        tape.part = "router"
        if kind == "top_softmax":
            return op.softmax(tape, self._top(logits, chosen))
        wide_logits = op.cast(tape, logits, 4.0)
        if kind == "sigmoid_wide":
            probabilities = op.pointwise(tape, wide_logits, keeps="output", name="router")
        else:
            probabilities = op.softmax(tape, wide_logits)
        top = self._top(probabilities, chosen)
        if self.facts.normalised_routes:
            total = op.mean(tape, top, width(1.0, WHOLE))
            top = op.by_rows(tape, top, total, "router")
        return op.cast(tape, top, x.itemsize) if kind == "softmax" else top

    def _top(self, x: Value, chosen: Width) -> Value:
        """`topk`: keeps the 8-byte indices; its derivative scatters into zeros."""
        out = self.tape.new(chosen, x.itemsize, wanted=x.wanted)
        indices = self.tape.new(chosen, 8.0)
        self.tape.record((x,), (out,), [indices], lambda run, _: (run.new(x.size),), "indices")
        return out

    def _gathered(self, x: Value, elements: Width) -> Value:
        """Tokens indexed by their routes."""
        choices = width(self._choices, ROUTED)
        return op.indexed(self.tape, x, elements, choices, gradients=0, on_cpu=self.variant.on_cpu)

    @property
    def _choices(self) -> float:
        moe = self.model.moe
        return float(moe.num_experts_per_tok) if moe is not None else 0.0

    def _grouped(self, x: Value, name: str, elements: Width) -> Value:
        operand, adapted = op.cast(self.tape, x, self.compute), name in self.variant.targets
        return op.product(
            self.tape, operand, name, elements, trained=self.trained or adapted, name="experts",
            gradient="passed" if adapted else "whole",
        )  # fmt: skip

    def _gate(self, joined: Value, inner: Width) -> Value:
        tape = self.tape
        if not self.facts.clamped_gate:
            gate, up = op.split(tape, joined, [inner, inner])
            return op.mul(tape, self.activation(gate), up, "experts")
        gate, up = op.narrow(tape, joined, inner), op.narrow(tape, joined, inner)
        gate = op.pointwise(tape, gate, keeps="input", temporaries=1, name="experts")
        up = op.pointwise(tape, up, keeps="input", temporaries=1, name="experts")
        glu = op.mul(tape, gate, op.pointwise(tape, op.scale(tape, gate), keeps="output", name="experts"), "experts")
        return op.mul(tape, op.shift(tape, up), glu, "experts")

    def _summed(self, x: Value, elements: Width) -> Value:
        """Routed results put back in order and summed by token: one more index, an expanded gradient, indexed."""
        choices = width(self._choices, ROUTED)
        ordered = op.indexed(self.tape, x, x.width, choices, gradients=1, on_cpu=self.variant.on_cpu)
        out = self.tape.new(elements, x.itemsize, wanted=x.wanted)
        self.tape.record((ordered,), (out,), (), lambda _, g: g, "sum")
        return out
