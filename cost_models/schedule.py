"""The pipeline schedule: which stage is which, what its chunks hold, and how many micro-batches are in flight."""

from functools import cache
from typing import Final

import numpy as np

from cost_models.arrays import Array, Integer

STAGE_CLASSES: Final = ("first", "middle", "last", "both")
"""`first` holds the embedding, `last` the head, `both` is the only stage. The stage-class axis of every table."""
FIRST, MIDDLE, LAST, BOTH = range(4)


def stage_class(stage: int, stages: int) -> int:
    """Index into STAGE_CLASSES of stage `stage` of `stages`."""
    if stages == 1:
        return BOTH
    return FIRST if stage == 0 else LAST if stage == stages - 1 else MIDDLE


def spread(layers: int, stages: int, virtual: int) -> tuple[int, ...]:
    """Layers of each stage of an interleaved pipeline, as even as its chunks allow where the rules let it be.

    What is short of equal stages is taken from the last chunk, which computes the loss, and from the first one, which
    embeds, in turn: 126 layers on 16 stages are 7, 8, ..., 8, 7.
    Source: arXiv:2407.21783 section 3.3.2 (one layer less in the first and in the last chunk); Megatron-LM
    `megatron/training/arguments.py`, --account-for-embedding-in-pipeline-split, --account-for-loss-in-pipeline-split.
    """
    most = -(-layers // stages)
    short, (first, *_, last) = most * stages - layers, _slots(most, virtual)
    at_last = min((short + 1) // 2, last)
    at_first = min(short - at_last, first)
    ends = (most - at_first, most - (short - at_first))
    return (ends[0], *[most] * (stages - 2), ends[1]) if stages > 1 else (layers,)


@cache
def chunk_sizes(layers: tuple[int, ...], virtual: int) -> tuple[tuple[int, ...], ...]:
    """Layers of each chunk of each stage: of layers that are `spread` all chunks of a turn alike, but the first and the
    last one of all are short; else as even as a stage's layers allow.
    """
    if virtual > 1 and layers == spread(sum(layers), len(layers), virtual):
        sizes = [list(_slots(max(layers), virtual)) for _ in layers]
        sizes[0][0] -= max(layers) - layers[0]
        sizes[-1][-1] -= max(layers) - layers[-1]
        if min(sizes[0][0], sizes[-1][-1]) >= 0:
            return tuple(tuple(of_stage) for of_stage in sizes)
    return tuple(_slots(count, virtual) for count in layers)


def _slots(layers: int, virtual: int) -> tuple[int, ...]:
    return tuple(layers * (turn + 1) // virtual - layers * turn // virtual for turn in range(virtual))


def stage_in_flight(layers: tuple[int, ...], stage: int, virtual: int, micro_batches: int) -> float:
    """Micro-batches that a stage of a given layout holds at its peak, as a share of its layers."""
    if virtual > 1 and len(set(sizes := chunk_sizes(layers, virtual)[stage])) > 1:
        return held_layers(sizes, stage, len(layers), micro_batches) / layers[stage]
    return float(in_flight(stage, len(layers), virtual, micro_batches))


def in_flight(
    stage: Integer, stages: Integer, virtual: Integer, micro_batches: Integer, layers: int | None = None
) -> Array:
    r"""Micro-batches whose activations a stage holds at its peak. [micro-batches, a multiple of 1/virtual]

    .. math:: \min(p - s,\; m) \;\text{for } v = 1;
              \quad \min(2(p - s - 1) + (v - 1)p + 1,\; m v) / v \;\text{otherwise}

    `layers` of the model: where they do not divide into equal chunks, the layers held at the peak over those of the
    stage (`held_layers`), else the same.
    Source: 1F1B, arXiv:2104.04473 section 2.2; warm-up count of the interleaved schedule, Megatron-LM
    `pipeline_parallel/schedules.py` (num_warmup_microbatches), plus the one chunk being computed.
    """
    plain = np.minimum(stages - stage, micro_batches)
    chunks = np.minimum(2 * (stages - stage - 1) + (virtual - 1) * stages + 1, micro_batches * virtual)
    result: Array = np.where(np.asarray(virtual) > 1, chunks / virtual, plain)
    if layers is None:
        return result
    odd = (np.asarray(virtual) > 1) & (layers % (np.asarray(stages) * virtual) != 0)
    return _with_chunks(result, odd, (stage, stages, virtual, micro_batches), layers) if np.any(odd) else result


def _with_chunks(plain: Array, odd: Array, at: tuple[Integer, Integer, Integer, Integer], layers: int) -> Array:
    """The same with the rows whose chunks differ, worked out once for all that are alike."""
    plain, odd, *columns = np.broadcast_arrays(plain, odd, *at)
    stage, stages, virtual, micro_batches = (column[odd] for column in columns)
    # Beyond the warm-up and one round of all chunks, at most three of p micro-batches, the pattern repeats.
    rows = np.stack([stage, stages, virtual, np.minimum(micro_batches, 4 * stages)])
    radix = rows.max(axis=1) + 1
    codes, where = np.unique(np.ravel_multi_index(tuple(rows), tuple(radix)), return_inverse=True)
    alike = zip(*(column.tolist() for column in np.unravel_index(codes, tuple(radix))), strict=True)
    result = plain.astype(float)
    result[odd] = np.array([_spread_in_flight(layers, *row) for row in alike])[where]
    return result


@cache
def _spread_in_flight(layers: int, stage: int, stages: int, virtual: int, micro_batches: int) -> float:
    return stage_in_flight(spread(layers, stages, virtual), stage, virtual, micro_batches)


def held_layers(sizes: tuple[int, ...], stage: int, stages: int, micro_batches: int) -> int:
    """Most layers times micro-batches whose activations a stage of an interleaved pipeline holds, chunk by chunk.

    After the warm-up every forward of a chunk is followed by a backward. Forwards run p micro-batches through the first
    chunk, then through the next, backwards the other way round; so the first chunk holds its micro-batches longest.
    Source: Megatron-LM `pipeline_parallel/schedules.py`, forward_backward_pipelining_with_interleaving.
    """
    virtual = len(sizes)
    warm = 2 * (stages - stage - 1) + (virtual - 1) * stages
    forwards = np.arange(min(micro_batches, 4 * stages) * virtual)
    turn = forwards % (virtual * stages) // stages
    taken = np.cumsum(np.array(sizes)[turn])
    freed = np.concatenate([[0], np.cumsum(np.array(sizes)[virtual - 1 - turn])])
    return int((taken - freed[np.maximum(forwards - warm, 0)]).max())


def step_seconds(
    slowest: Array, total: Array, tail: Array, fixed: Array, *, micro_batches: Integer, virtual: Integer
) -> Array:
    r"""Time of one optimizer step from its stages. [s]

    .. math:: (m - 1/v)\,\max_s t_s + \tfrac1v \sum_s t_s + \max_s g_s + c

    where `t_s` is stage s's forward and backward of one micro-batch, `g_s` its exposed work after the last
    micro-batch, `c` what does not depend on the layout.
    Source: arXiv:2104.04473 section 2.2 (bubble (p-1)/m, divided by v when interleaved), for uneven stages.
    """
    result: Array = (micro_batches - 1 / np.asarray(virtual)) * slowest + total / virtual + tail + fixed
    return result
