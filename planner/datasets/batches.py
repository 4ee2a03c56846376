"""Micro-batch and accumulation of a measured row, from whichever numbers it states."""

from typing import Final

from planner.datasets.frameworks import FrameworkReading
from planner.datasets.unusable import Unusable
from planner.measurement import Measurement

_PRINTING: Final = 0.02
"""How far a batch that follows from a rate and a step may be from a whole number: both are printed rounded."""


def batch_of(row: Measurement, reading: FrameworkReading, dp: int) -> tuple[int, int, str]:
    """Micro-batch, accumulation steps, and what had to be assumed for them.

    A batch that is not stated follows from a rate and a step time, where a row states both.

    Raises:
        Unusable: the micro-batch does not follow, or the numbers contradict each other.
    """
    micro, accumulation, batch = row.micro_batch, row.grad_accum, row.global_batch_seqs
    if batch is None and accumulation is None and micro is not None:
        batch = _of_rates(row, micro * dp)
    if micro is None and batch is not None and accumulation is not None and batch % (dp * accumulation) == 0:
        micro = batch // (dp * accumulation)
    if micro is None and batch is not None and batch == dp:
        micro = 1
    said = ""
    if micro is None and accumulation is None:
        micro, said = _of_stages(row, reading, dp)
    if micro is None:
        raise Unusable("micro-batch not stated")
    if batch is not None:
        if batch % (micro * dp):
            raise Unusable("global batch is no multiple of micro-batch x dp")
        return micro, batch // (micro * dp), said
    if accumulation is not None:
        return micro, accumulation, ""
    return micro, 1, "grad_accum: global batch not stated, 1 assumed"


def _of_stages(row: Measurement, reading: FrameworkReading, dp: int) -> tuple[int | None, str]:
    """The micro-batch of a pipeline whose framework cuts a rank's batch into as many as there are stages."""
    batch, stages = row.global_batch_seqs, row.pp or 1
    if not reading.as_many_as_stages or batch is None or stages == 1 or batch % (dp * stages):
        return None, ""
    if row.vpp is None and "nterleaved" in row.notes:
        raise Unusable("virtual stages not stated")
    return batch // (dp * stages), f"micro_batch: not stated, as many as {stages} stages assumed for {row.framework}"


def _of_rates(row: Measurement, multiple: int) -> int | None:
    """The global batch that a rate and a step time make, where it is a multiple of micro-batch x dp. [sequences]"""
    step, length = row.step_time_s, row.seq_len
    if step is None or length is None or row.facts.get("lengths") == "variable":
        return None
    if row.samples_per_s is not None:
        batch = row.samples_per_s * step
    elif row.tokens_per_s_per_gpu is not None and row.n_gpus is not None:
        batch = row.tokens_per_s_per_gpu * row.n_gpus * step / length
    else:
        return None
    steps = round(batch / multiple)
    return steps * multiple if steps and abs(batch / (steps * multiple) - 1) <= _PRINTING else None
