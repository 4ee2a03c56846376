"""Attention of transformers' modules on a tape of sizes: projections, positions, fused and written-out kernels.

Source: transformers `models/*/modeling_*.py`, `integrations/sdpa_attention.py`; ATen `transformers/attention.cpp`.
"""

from cost_models.memory import operators as op
from cost_models.memory.blocks import Blocks
from cost_models.memory.tape import KEY_VALUE, MASK, SCORE, SEQUENCE, TENSOR, WHOLE, Value, Width, width


class Attention(Blocks):
    """The attention block of a layer."""

    def rotary(self, x: Value) -> Value:
        """Queries or keys turned by their position."""
        tape, share = self.tape, self.facts.rotary_share
        if share == 1.0:
            return self._turned(x)
        turned = op.narrow(tape, x, x.width * share)
        passed = op.narrow(tape, x, x.width * (1.0 - share))
        return op.cat(tape, [self._turned(turned), passed])

    def _turned(self, x: Value) -> Value:
        tape, style = self.tape, self.facts.rotary
        half = x.width / 2
        table = 4.0 if self.variant.autocast else None
        if style == "complex":
            wide = op.cast(tape, x, 4.0)
            return op.cast(tape, op.scale(tape, wide), x.itemsize)
        if style in ("halves", "pairs"):
            parts = (
                op.split(tape, x, [half, half])
                if style == "halves"
                else (op.narrow(tape, x, half), op.narrow(tape, x, half))
            )
            first, second = parts
            sums = [
                op.add(
                    tape,
                    op.scale(tape, a, table),
                    op.negative(tape, op.scale(tape, b, table)) if i == 0 else op.scale(tape, b, table),
                )
                for i, (a, b) in enumerate(((first, second), (second, first)))
            ]
            return op.cat(tape, sums)
        source = op.cast(tape, x, 4.0) if style == "wide_interleaved" else x
        straight = op.scale(tape, source, table)
        low, high = op.narrow(tape, source, half), op.narrow(tape, source, half)
        crossed = op.scale(tape, op.cat(tape, [op.negative(tape, high), low]), table)
        return op.cast(
            tape, op.add(tape, straight, crossed), x.itemsize if style == "wide_interleaved" else straight.itemsize
        )

    def attend(self, q: Value, k: Value, v: Value, heads: int) -> Value:
        """Attention over projected heads, fused or written out."""
        tape = self.tape
        if self.variant.autocast:
            q, k, v = (op.cast(tape, each, 2.0) for each in (q, k, v))
        if not self.variant.materialised:
            if self._spelled_out(k):
                return self._math(q, k, v, heads)
            mask = width(1.0, MASK) if self.variant.masked else None
            if self.facts.repeated_heads:
                k, v = op.repeat(tape, k, q.width), op.repeat(tape, v, self._values(q, v))
            if mask is not None and not self.facts.ungrouped:
                single = self.model.num_key_value_heads == 1
                k = op.repeat(tape, k, q.width, single=single)
                v = op.repeat(tape, v, self._values(q, v), single=single)
            out = op.attention(tape, q, k, v, self._values(q, v), width(heads, TENSOR), mask)
            return op.copy(tape, out) if self.facts.concatenated_rotary else out
        k, v = op.repeat(tape, k, q.width), op.repeat(tape, v, self._values(q, v))
        if self.variant.several_samples:
            # Heads of several samples are no one dimension of a view.
            q, k, v = (op.copy(tape, each) for each in (q, k, v))
        itemsize = v.itemsize
        if self.facts.softmax == "wide_operands":
            q, k = op.cast(tape, q, 4.0), op.cast(tape, k, 4.0)
        scores = op.scale(tape, op.matmul(tape, q, k, width(heads, SCORE), ("query_key", "")))
        probabilities = op.cast(tape, self._softmax(scores), itemsize)
        if self.variant.dropout:
            probabilities = op.dropout(tape, probabilities)
        return op.copy(tape, op.matmul(tape, probabilities, v, self._values(q, v), ("scores", "")))

    def _spelled_out(self, k: Value) -> bool:
        """Whether no fused kernel takes the operands: heads that are not grouped, or unequal widths on a CPU."""
        grouped = self.facts.ungrouped and self.model.num_key_value_heads != self.model.num_attention_heads
        mla = self.model.mla
        unequal = mla is not None and mla.v_head_dim != mla.qk_nope_head_dim + mla.qk_rope_head_dim
        return (grouped and k.width.sum() < self.model.query_width) or (unequal and self.variant.on_cpu)

    def _math(self, q: Value, k: Value, v: Value, heads: int) -> Value:
        """Attention in fp32 from elementary operators. Source: ATen `transformers/attention.cpp`, math kernel."""
        tape, itemsize = self.tape, q.itemsize
        wide_q, wide_k, wide_v = (op.cast(tape, each, 4.0) for each in (q, k, v))
        scaled_q, scaled_k = op.scale(tape, wide_q), op.scale(tape, wide_k)
        elements = self._values(q, v)
        scores = op.shift(tape, op.matmul(tape, scaled_q, op.repeat(tape, scaled_k, q.width), width(heads, SCORE)))
        probabilities = op.softmax(tape, scores)
        same = (elements == wide_v.width).all()
        values = op.copy(tape, wide_v) if same else op.repeat(tape, wide_v, elements)
        return op.copy(tape, op.cast(tape, op.matmul(tape, probabilities, values, elements), itemsize))

    def _values(self, q: Value, v: Value) -> Width:
        mla = self.model.mla
        return width(self.model.num_attention_heads * mla.v_head_dim, TENSOR) if mla is not None else q.width

    def _softmax(self, scores: Value) -> Value:
        tape, kind = self.tape, self.facts.softmax
        if self.model.attention_softcap:
            scores = op.scale(tape, op.pointwise(tape, op.scale(tape, scores), keeps="output", name="softcap"))
        scores = op.shift(tape, scores)
        gpu = not self.variant.on_cpu
        if kind == "narrow" and not self.variant.autocast:
            return op.softmax(tape, scores, temporary=gpu)
        if kind == "sinks":
            joined = op.copy(tape, scores)
            shifted = op.add(tape, joined, op.negative(tape, joined))
            return op.view(tape, op.softmax(tape, shifted))
        itemsize = scores.itemsize
        if gpu:
            return op.cast(tape, op.softmax(tape, scores, 4.0, temporary=True), itemsize)
        return op.cast(tape, op.softmax(tape, op.cast(tape, scores, 4.0)), itemsize)

    def attention(self, x: Value) -> Value:
        """A whole attention block on its input."""
        self.tape.part = "attention"
        model, tape, facts = self.model, self.tape, self.facts
        if model.mla is not None:
            return self._latent(x)
        q_width, kv_width = width(model.query_width, TENSOR), width(model.key_value_width, KEY_VALUE)
        if facts.projections == "fused":
            self.tape.part = "norm"
            joined = self.linear(x, "q_proj", q_width + 2 * kv_width, self._part_adapted(q_width, kv_width))
            self.tape.part = "attention"
            q, k, v = op.split(tape, joined, [q_width, kv_width, kv_width])
            if facts.values_copied:
                q, k, v = (op.copy(tape, each) for each in (q, k, v))
                if model.num_key_value_heads > 1:
                    k, v = op.repeat(tape, k, q_width), op.repeat(tape, v, q_width)
        else:
            self.tape.part = "norm"
            q, k, v = (
                self.linear(x, name, w) for name, w in (("q_proj", q_width), ("k_proj", kv_width), ("v_proj", kv_width))
            )
            self.tape.part = "attention"
        if model.qk_norm != "none":
            head = model.qk_norm == "head"
            q = self.norm(q, width(model.num_attention_heads if head else 1, TENSOR))
            k = self.norm(k, width(model.num_key_value_heads if head else 1, KEY_VALUE))
        if model.position_embedding == "rotary" and facts.rotary != "none":
            q, k = self.rotary(q), self.rotary(k)
        out = self.linear(self.attend(q, k, v, model.num_attention_heads), "o_proj", width(model.hidden_size, SEQUENCE))
        tape.until_now(q, k, v)
        return out

    def _part_adapted(self, q_width: Width, kv_width: Width) -> Width | None:
        """Columns of the fused product that have an adapter, where it is padded and not all of them have one."""
        widths = {"q_proj": q_width, "k_proj": kv_width, "v_proj": kv_width}
        adapted = [each for name, each in widths.items() if name in self.variant.targets]
        some = self.facts.padded_adapters and 0 < len(adapted) < len(widths)
        return sum(adapted[1:], adapted[0]) if some else None

    def _latent(self, x: Value) -> Value:
        """Multi-head latent attention with keys and values expanded. Source: arXiv:2405.04434, equations 9-19."""
        model, tape = self.model, self.tape
        mla, n = model.mla, model.num_attention_heads
        assert mla is not None
        rows = width(1.0, WHOLE)
        nope, rope = width(n * mla.qk_nope_head_dim, TENSOR), width(n * mla.qk_rope_head_dim, TENSOR)
        values = width(n * mla.v_head_dim, TENSOR)
        if mla.q_lora_rank is None:
            q = self.linear(x, "q_proj", nope + rope)
        else:
            low = self.norm(self.linear(x, "q_a_proj", width(mla.q_lora_rank, WHOLE)), rows)
            q = self.linear(low, "q_b_proj", nope + rope)
        passed, turned = op.split(tape, q, [nope, rope])
        latent, shared = width(mla.kv_lora_rank, WHOLE), width(mla.qk_rope_head_dim, WHOLE)
        joined = self.linear(x, "kv_a_proj_with_mqa", latent + shared)
        low, key_turned = op.split(tape, joined, [latent, shared])
        low = self.norm(low, rows)
        turned, key_turned = self._turned(turned), self._turned(key_turned)
        q = op.cat(tape, [passed, turned])
        expanded = self.linear(low, "kv_b_proj", nope + values)
        key, v = op.split(tape, expanded, [nope, values])
        k = op.cat(tape, [key, op.repeat(tape, key_turned, rope)])
        out = self.linear(self.attend(q, k, v, n), "o_proj", width(model.hidden_size, SEQUENCE))
        tape.until_now(q, k, v)
        return out
