"""Alpha-beta model of a collective: a latency for each step of the ring and a rate for the bytes that cross a link."""

from collections.abc import Sequence
from typing import Final, Literal

import numpy as np

from cost_models.specs.base import Spec

Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
COLLECTIVES: Final[tuple[Collective, ...]] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


class AlphaBeta(Spec):
    """seconds = steps x alpha + wire bytes / rate. Errors are relative, of the model against each measured size."""

    alpha_seconds: float
    bytes_per_second: float
    median_error: float
    max_error: float
    points: tuple[tuple[int, float], ...]
    """(bytes of the message, seconds)."""


def ring_steps(collective: Collective, processes: int) -> int:
    """Steps of a ring: an all-reduce is a reduce-scatter and an all-gather.

    Source: Patarasuk and Yuan, J. Parallel Distrib. Comput. 69 (2009) section 3.
    """
    return (processes - 1) * (2 if collective == "all_reduce" else 1)


def wire_bytes(collective: Collective, message_bytes: float, processes: int) -> float:
    """Bytes that one process sends: (n-1)/n of the message in each of the ring's two halves. [bytes]"""
    return ring_steps(collective, processes) * message_bytes / processes


def alpha_beta(collective: Collective, processes: int, points: Sequence[tuple[int, float]]) -> AlphaBeta:
    """Least squares of relative residuals: small messages count as much as large ones. Alpha is not negative."""
    sizes = np.array([wire_bytes(collective, size, processes) for size, _ in points])
    seconds = np.array([time for _, time in points])
    steps = float(ring_steps(collective, processes))
    columns = np.stack([np.full_like(sizes, steps), sizes], axis=1) / seconds[:, None]
    (alpha, per_byte), *_ = np.linalg.lstsq(columns, np.ones_like(seconds), rcond=None)
    if alpha < 0:
        alpha, per_byte = 0.0, _through_origin(columns[:, 1])
    elif per_byte <= 0:  # latency alone: all messages were too small to show a rate
        alpha, per_byte = _through_origin(columns[:, 0]), 1 / float(np.max(sizes / seconds))
    errors = np.abs(steps * alpha + sizes * per_byte - seconds) / seconds
    return AlphaBeta(
        alpha_seconds=float(alpha),
        bytes_per_second=float(1 / per_byte),
        median_error=float(np.median(errors)),
        max_error=float(errors.max()),
        points=tuple((int(size), float(time)) for size, time in points),
    )


def _through_origin(column: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> float:
    """The factor that brings `column` nearest to ones."""
    return float(column.sum() / (column * column).sum())
