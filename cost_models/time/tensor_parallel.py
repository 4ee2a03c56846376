"""Tensor parallelism: what a layer's ranks exchange, and what of it runs beside matrix products."""

from typing import Any

from cost_models.arrays import choose
from cost_models.parameters import Split, layer_weights
from cost_models.specs.model import LayerKind
from cost_models.time.collectives import all_reduce_seconds, tensor_group
from cost_models.time.frame import Frame, once, overlapped
from cost_models.time.gemm import backward_passes, matmul_seconds, matrix_sizes, sustained_rate


def reductions(frame: Frame, kind: LayerKind) -> Any:
    """Tensor-parallel all-reduces of one pass: after attention, and after a feed-forward block split over ranks.

    Experts that are not split over tensor-parallel ranks exchange tokens by all-to-all instead.
    """
    return 2.0 if kind.mlp == "dense" else 1.0 + choose(frame.etp > 1, 1.0, 0.0)


def reduction_seconds(frame: Frame, count: float | Any) -> Any:
    r"""All-reduces of one pass over a layer, or the gathers and scatters of sequence parallelism instead. [s]

    .. math:: n_r \times \text{all-reduce}(T h \beta)

    Two per layer forward (after attention and after the feed-forward block), two backward.
    Source: Megatron-LM, arXiv:1909.08053 section 3; equal volume with sequence parallelism, arXiv:2205.05198
    section 4.2.2.
    """
    return count * _hidden_state_reduction(frame)


@once
def _hidden_state_reduction(frame: Frame) -> Any:
    size = frame.tokens * frame.model.hidden_size * frame.width
    return choose(frame.tp > 1, all_reduce_seconds(tensor_group(frame), size), 0.0)


def backward_seconds(frame: Frame, kind: LayerKind) -> tuple[Any, Any]:
    r"""Exposed and hidden communication of one layer's backward. [s]

    .. math:: \tfrac{r}{2} + \max(0,\; r - 2 g) + \kappa\,\min(r,\, 2 g)

    with the reductions r of a pass and the time g of one product with the matrices whose outputs are split. Sequence
    parallelism gathers the gradient that enters a block, which nothing covers. It gathers the block's input again
    beside the product for the input gradient, and scatters that gradient beside the product for the weights. Without
    it the all-reduce of the input gradient runs beside the product for the weights. DeepSpeed's fork of 2021 without
    sequence parallelism, and DTensor, wait for every collective and keep the gathered input.
    Source: arXiv:2205.05198 section 4.2.2; Megatron-LM `core/tensor_parallel/layers.py`
    (LinearWithGradAccumulationAndAsyncCommunication, of December 2021).
    """
    reduced = reduction_seconds(frame, reductions(frame, kind))
    split = frame.column("sequence_parallel") > 0
    asynchronous = frame.backend_is("megatron") | (frame.backend_is("megatron-deepspeed") & split)
    product = matmul_seconds(2 * frame.tokens * _split_outputs(frame, kind), sustained_rate(frame))
    beside = choose(split, backward_passes(frame), backward_passes(frame) - 1) * product
    late, hidden = overlapped(beside, reduced, 0.0, frame.factor("overlap_contention"))
    blocking = choose(split, reduced / 2, 0.0)
    return choose(asynchronous, blocking + late, reduced), choose(asynchronous, hidden, 0.0)


@once
def _split_outputs(frame: Frame, kind: LayerKind) -> Any:
    """Elements per rank of a layer's matrices whose outputs are split over tensor-parallel ranks. [elements]"""
    weights = layer_weights(frame.model, kind)
    return matrix_sizes(tuple(w for w in weights if w.split in (Split.COLUMN, Split.KEY_VALUE)), frame)
