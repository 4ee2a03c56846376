"""PyTorch's operators on a tape of sizes: what each saves, and what its derivative allocates.

Source: PyTorch `tools/autograd/derivatives.yaml` and `torch/csrc/autograd/FunctionsManual.cpp`; each entry names its
formula there.
"""

from collections.abc import Sequence
from typing import Literal

from cost_models.memory.tape import Run, Storage, Tape, Value, Width

Gradients = Sequence[Storage | None]


def view(tape: Tape, x: Value) -> Value:
    """A view of the whole tensor: transpose, reshape of what is contiguous."""
    out = Value(x.width, x.itemsize, x.storage, x.wanted)
    tape.record((x,), (out,), (), lambda _, g: g, "view")
    return out


def split(tape: Tape, x: Value, widths: Sequence[Width]) -> tuple[Value, ...]:
    """`split`, `chunk`: views whose gradients are concatenated."""
    outs = tuple(Value(w, x.itemsize, x.storage, x.wanted) for w in widths)
    tape.record((x,), outs, (), lambda run, _: (run.new(x.size),), "split")
    return outs


def narrow(tape: Tape, x: Value, elements: Width) -> Value:
    """One slice. Its derivative is a tensor of zeros of the whole's size (`slice_backward`)."""
    out = Value(elements, x.itemsize, x.storage, x.wanted)
    tape.record((x,), (out,), (), lambda run, _: (run.new(x.size),), "slice")
    return out


def copy(tape: Tape, x: Value) -> Value:
    """A contiguous copy; its gradient passes through."""
    out = tape.new(x.width, x.itemsize, wanted=x.wanted)
    tape.record((x,), (out,), (), lambda _, g: g, "copy")
    return out


def cat(tape: Tape, parts: Sequence[Value]) -> Value:
    """Concatenation. Its derivative is a slice of the gradient for each part."""
    total = sum((part.width for part in parts[1:]), parts[0].width)
    out = tape.new(total, parts[0].itemsize, wanted=any(part.wanted for part in parts))
    tape.record(tuple(parts), (out,), (), lambda _, g: tuple(g[0] for _ in parts), "cat")
    return out


def cast(tape: Tape, x: Value, itemsize: float) -> Value:
    """Another dtype: nothing when it is the same."""
    if itemsize == x.itemsize:
        return x
    out = tape.new(x.width, itemsize, wanted=x.wanted)
    tape.record((x,), (out,), (), lambda run, _: (run.new(x.size),), "cast")
    return out


def scale(tape: Tape, x: Value, itemsize: float | None = None) -> Value:
    """Times a number or a tensor without gradient; a wider factor makes the result wider."""
    out = tape.new(x.width, max(x.itemsize, itemsize or 0.0), wanted=x.wanted)

    def backward(run: Run, g: Gradients) -> Gradients:
        product = run.new(out.size)
        return (product if out.itemsize == x.itemsize else run.new(x.size),)

    tape.record((x,), (out,), (), backward, "scale")
    return out


def shift(tape: Tape, x: Value) -> Value:
    """Plus a number or a tensor without gradient."""
    out = tape.new(x.width, x.itemsize, wanted=x.wanted)
    tape.record((x,), (out,), (), lambda _, g: g, "shift")
    return out


def negative(tape: Tape, x: Value) -> Value:
    """`neg`."""
    out = tape.new(x.width, x.itemsize, wanted=x.wanted)
    tape.record((x,), (out,), (), lambda run, _: (run.new(x.size),), "neg")
    return out


def add(tape: Tape, a: Value, b: Value) -> Value:
    """Both summands get the gradient itself, or a copy in their own dtype."""
    out = tape.new(a.width, max(a.itemsize, b.itemsize), wanted=a.wanted or b.wanted)

    def backward(run: Run, g: Gradients) -> Gradients:
        return tuple(g[0] if v.itemsize == out.itemsize else run.new(v.size) if v.wanted else None for v in (a, b))

    tape.record((a, b), (out,), (), backward, "add")
    return out


def mul(tape: Tape, a: Value, b: Value, name: str = "product") -> Value:
    """Each factor is saved for the other's gradient (`mul_tensor_backward`)."""
    out = tape.new(a.width, max(a.itemsize, b.itemsize), wanted=a.wanted or b.wanted)
    saved = ([a] if b.wanted else []) + ([b] if a.wanted else [])

    def backward(run: Run, _: Gradients) -> Gradients:
        return tuple(run.new(out.size) if v.wanted else None for v in (a, b))

    tape.record((a, b), (out,), saved, backward, name)
    return out


def weighted(tape: Tape, x: Value, *, trained: bool, itemsize: float | None = None) -> Value:
    """Times a vector of weights: the gradient of the vector is a whole product before it is summed."""
    out = tape.new(x.width, max(x.itemsize, itemsize or 0.0), wanted=x.wanted)

    def backward(run: Run, _: Gradients) -> Gradients:
        if trained:
            run.new(out.size)
        return (run.new(out.size),)

    tape.record((x,), (out,), [x] if trained else [], backward, "normalised", trained=trained)
    return out


def square(tape: Tape, x: Value) -> Value:
    """`pow` with exponent 2. `pow_backward` holds self^1, its double and the product."""
    out = tape.new(x.width, x.itemsize, wanted=x.wanted)

    def backward(run: Run, _: Gradients) -> Gradients:
        run.new(x.size)
        run.new(x.size)
        return (run.new(x.size),)

    tape.record((x,), (out,), [x], backward, "square")
    return out


def mean(tape: Tape, x: Value, rows: Width) -> Value:
    """Mean over the last dimension: its derivative is as large as the input (`mean_backward`)."""
    out = tape.new(rows, x.itemsize, wanted=x.wanted)
    tape.record((x,), (out,), (), lambda run, _: (run.new(x.size),), "mean")
    return out


def rsqrt(tape: Tape, x: Value) -> Value:
    """Keeps its result."""
    out = tape.new(x.width, x.itemsize, wanted=x.wanted)
    tape.record((x,), (out,), [out], lambda run, _: (run.new(x.size), run.new(x.size))[:1], "rsqrt")
    return out


def by_rows(tape: Tape, x: Value, rows: Value, name: str = "input") -> Value:
    """Times one number a row: the rows' gradient is a whole product before it is summed. A wider number widens it."""
    out = tape.new(x.width, max(x.itemsize, rows.itemsize), wanted=x.wanted)

    def backward(run: Run, _: Gradients) -> Gradients:
        first = run.new(out.size)
        run.new(out.size)
        return first if out.itemsize == x.itemsize else run.new(x.size), run.new(rows.size)

    tape.record((x, rows), (out,), [x, rows], backward, name)
    return out


def pointwise(tape: Tape, x: Value, *, keeps: str, temporaries: int = 0, name: str = "activation") -> Value:
    """One kernel that keeps its `input`, its `output` or `both`; some derivatives hold temporaries of that size."""
    out = tape.new(x.width, x.itemsize, wanted=x.wanted)
    saved = {"input": [x], "output": [out], "both": [x, out]}[keeps]

    def backward(run: Run, _: Gradients) -> Gradients:
        for _again in range(temporaries):
            run.new(x.size)
        return (run.new(x.size),)

    tape.record((x,), (out,), saved, backward, name)
    return out


def product(
    tape: Tape,
    x: Value,
    weight: str,
    elements: Width,
    *,
    trained: bool,
    name: str = "input",
    gradient: Literal["whole", "cast", "passed"] = "whole",
    keeps_input: bool = False,
) -> Value:
    """`mm` with a weight: the input is kept for the weight's gradient only (`mm_mat1_backward`, `mm_mat2_backward`).

    The weight's gradient may be `cast` back to the weight's dtype, or `passed` on to the adapters that it was expanded
    from.
    """
    out = tape.new(elements, x.itemsize, wanted=x.wanted or trained)

    def backward(run: Run, _: Gradients) -> Gradients:
        result = run.new(x.size) if x.wanted else None
        if gradient == "passed":
            run.passed(weight)
        elif trained:
            run.produced(weight, cast=gradient == "cast")
        return (result,)

    if keeps_input:
        tape.frozen_inputs.append(x.storage)
    tape.record((x,), (out,), [x] if trained or keeps_input else [], backward, name, trained=trained)
    return out


def matmul(tape: Tape, a: Value, b: Value, elements: Width, names: tuple[str, str] = ("", "")) -> Value:
    """`bmm` of two activations: both are kept."""
    out = tape.new(elements, a.itemsize, wanted=a.wanted or b.wanted)
    tape.record((a, b), (out,), [a, b], lambda run, _: (run.new(a.size), run.new(b.size)), names[0] or "matmul")
    return out


def softmax(tape: Tape, x: Value, itemsize: float | None = None, *, temporary: bool = False) -> Value:
    """Keeps its result, which CUDA can write wider than its input. CUDA's derivative holds output times gradient.

    Source: ATen `native/cuda/SoftMax.cu`, softmax_backward_cuda_out.
    """
    out = tape.new(x.width, itemsize or x.itemsize, wanted=x.wanted)

    def backward(run: Run, _: Gradients) -> Gradients:
        if temporary:
            run.new(out.size)
        return (run.new(x.size),)

    tape.record((x,), (out,), [out], backward, "softmax")
    return out


def dropout(tape: Tape, x: Value) -> Value:
    """Keeps its mask, one byte an element. Source: ATen `native/cuda/Dropout.cu`, native_dropout."""
    out, mask = tape.new(x.width, x.itemsize, wanted=x.wanted), tape.new(x.width, 1.0)
    tape.record((x,), (out,), [mask], lambda run, _: (run.new(x.size),), "dropout_mask")
    return out


def indexed(tape: Tape, x: Value, elements: Width, choices: Width, *, gradients: int, on_cpu: bool) -> Value:
    """Rows chosen by an 8-byte index, which is kept. Its derivative adds the gradient into zeros.

    Of a summed view the gradient is `gradients` copies of its own; a tensor subclass, as the tracker's, puts out of
    place. Source: `FunctionsManual.cpp`, index_backward.
    """
    out, index = tape.new(elements, x.itemsize, wanted=x.wanted), tape.new(choices, 8.0)

    def backward(run: Run, _: Gradients) -> Gradients:
        for _again in range(gradients):
            run.new(out.size)
        if on_cpu:
            run.new(x.size)
        return (run.new(x.size),)

    tape.record((x,), (out,), [index], backward, "indices")
    return out


def placed(tape: Tape, x: Value, elements: Width) -> Value:
    """`index_copy` into zeros: keeps its source, whose gradient is selected (`index_copy` in derivatives.yaml)."""
    out = tape.new(elements, x.itemsize, wanted=x.wanted)
    tape.record((x,), (out,), [x], lambda run, _: (run.new(x.size),), "adapter_result")
    return out


def where(tape: Tape, a: Value, b: Value) -> Value:
    """One of two by a condition, which is kept, a byte an element; both gradients are whole."""
    out, condition = tape.new(a.width, a.itemsize, wanted=a.wanted or b.wanted), tape.new(a.width, 1.0)
    tape.record((a, b), (out,), [condition], lambda run, _: (run.new(a.size), run.new(b.size)), "activation")
    return out


def layer_norm(tape: Tape, x: Value, rows: Width) -> Value:
    """One kernel: keeps the input, and mean and 1/std of every row."""
    out = tape.new(x.width, x.itemsize, wanted=x.wanted)
    statistics = tape.new(rows * 2, x.itemsize)
    tape.record((x,), (out,), [x, statistics], lambda run, _: (run.new(x.size),), "norm")
    return out


def repeat(tape: Tape, x: Value, elements: Width, *, single: bool = False) -> Value:
    """Heads repeated for their group: an expanded copy, or a view of a single one; gradients are summed by group."""
    if elements.sum() == x.width.sum():
        return x
    out = (
        Value(elements, x.itemsize, x.storage, x.wanted) if single else tape.new(elements, x.itemsize, wanted=x.wanted)
    )
    tape.record((x,), (out,), (), lambda run, _: (run.new(x.size),), "repeat")
    return out


def attention(tape: Tape, q: Value, k: Value, v: Value, elements: Width, rows: Width, mask: Width | None) -> Value:
    """Fused attention keeps its inputs, its output and one fp32 number a row and head; a mask it keeps as floats."""
    out = tape.new(elements, q.itemsize)
    statistics = tape.new(rows, 4.0)
    kept = [q, k, v, out, statistics]
    if mask is not None:
        kept.append(tape.new(mask, q.itemsize))

    def backward(run: Run, _: Gradients) -> Gradients:
        return run.new(q.size), run.new(k.size), run.new(v.size)

    tape.record((q, k, v), (out,), kept, backward, "attention")
    return out
