"""What a stage may do with a run of layers: every way to recompute and offload it, with its time and its need.

A run is n consecutive layers; of these the first f recompute fully and the next e - f partly. Everything is a sum over
the layers before a mark, so time(f, e) and memory(f, e) are tables over pairs of marks.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from cost_models.arrays import FloatArray, IntArray
from solver.audit.row import ALL, FREE, ONE_MODE, SAME_COUNT, AuditRow, Part

_NEVER = np.inf


@dataclass(frozen=True, slots=True)
class Runs:
    """Different runs of layers, by their kinds in order."""

    length: IntArray  # (W,)
    before: FloatArray  # (W, K + 1, J) layers by kind among the first k of a run
    at: IntArray  # (L + 1, L + 1) run of the layers [a, b), -1 where there is none


@cache
def runs(order: tuple[int, ...], kinds: int, least: int, longest: int, step: int) -> Runs:
    """Runs of `least` to `longest` layers that start at a multiple of `step`."""
    total, known = len(order), dict[tuple[int, ...], int]()
    at = np.full((total + 1, total + 1), -1, dtype=np.int64)
    for start in range(0, total, step):
        for end in range(start + least, min(start + longest, total) + 1):
            at[start, end] = known.setdefault(order[start:end], len(known))
    length = np.array([len(run) for run in known], dtype=np.int64)
    before = np.zeros((len(known), longest + 1, kinds))
    for w, run in enumerate(known):
        for k in range(1, longest + 1):
            before[w, k] = before[w, k - 1]
            if k <= len(run):
                before[w, k, run[k - 1]] += 1
    return Runs(length, before, at)


@dataclass(frozen=True, slots=True)
class Options:
    """Pairs of marks for every stage and run. S stages, W runs, K pairs."""

    runs: Runs
    full: IntArray  # (K,)
    marked: IntArray  # (K,) f + selective
    time: FloatArray  # (S, W, K); infinite where the pair is none of the run
    need: FloatArray  # (S, W, K) peak over the instants, nothing offloaded


@cache
def _pairs(longest: int, mixed: bool) -> tuple[Any, Any]:
    if mixed:
        pairs = [(f, e) for e in range(longest + 1) for f in range(e + 1)]
    else:
        pairs = [(0, e) for e in range(longest + 1)] + [(f, f) for f in range(1, longest + 1)]
    table = np.array(pairs, dtype=np.int64)
    return table[:, 0], table[:, 1]


def options(row: AuditRow, longest: int) -> Options:
    """The tables of a row, for runs of at most `longest` layers."""
    even = row.can.even or row.stages == 1
    each = len(row.order) // row.stages
    spans = runs(
        row.order, row.time.layer.shape[2], each if even else 1, each if even else longest, each if even else 1
    )
    full, marked = _pairs(spans.before.shape[1] - 1, row.can.mixed and row.can.recompute == FREE)
    length, b = spans.length, spans.before
    whole = b[np.arange(len(length)), length]
    first, upto = b[:, full], b[:, marked]
    parts = (whole[:, None] - upto, upto - first, first)
    shape = (len(length), len(full))
    present = (marked[None] < length[:, None], np.broadcast_to(marked > full, shape), np.broadcast_to(full > 0, shape))
    bad = marked[None] > length[:, None]
    for mode, offered in enumerate(row.can.modes):
        bad = bad if offered else bad | present[mode]
    least = np.where(present[0], 0, np.where(present[1], 1, 2))
    most = np.where(present[2], 2, np.where(present[1], 1, 0))
    time, need = np.empty((row.stages, *shape)), np.full((row.stages, *shape), -_NEVER)
    for s in range(row.stages):
        time[s] = row.time.stage[0, s] + _sum(parts, row.time.layer[0, s])
        if row.can.given is not None:
            time[s, length != row.can.given[s]] = _NEVER
        for i, selects_most in enumerate(row.memory.most):
            used = _sum(parts, row.memory.layer[0, s, i])
            work = row.memory.working[0, s, i][most if selects_most else least]
            np.maximum(need[s], row.memory.constant[0, s, i] + used + work, out=need[s])
    return Options(spans, full, marked, np.where(bad, _NEVER, time), need)


def _sum(parts: Any, of_layer: FloatArray) -> FloatArray:
    """Layers of each mode by kind times their coefficients. (R)(W, K, J), (J, R) -> (W, K)"""
    result: FloatArray = sum(part @ of_layer[:, r] for r, part in enumerate(parts))
    return result


def joint_pairs(row: AuditRow, table: Options) -> IntArray | None:
    """Pair of every run under each joint decision on recomputation; None where every stage decides for itself. (C, W)

    -1 where a run is too short for the decision.
    """
    if row.can.recompute == FREE:
        return None
    length = table.runs.length.tolist()
    place = {(int(f), int(e)): k for k, (f, e) in enumerate(zip(table.full, table.marked, strict=True))}
    selective, whole = [place[0, n] for n in length], [place[n, n] for n in length]
    if row.can.recompute == ONE_MODE:
        wanted = [whole] if row.can.needs_full else [[place[0, 0]] * len(length), selective, whole]
    else:
        counts = range(row.virtual if row.can.needs_full else 0, max(length, default=0) + 1, row.virtual)
        wanted = [[place[k, k] if k <= n else -1 for n in length] for k in counts]
        wanted += [] if row.can.needs_full else [selective]
    return np.array(wanted, dtype=np.int64).reshape(-1, len(length))


def joint_offloads(row: AuditRow, table: Options) -> IntArray | None:
    """Offloaded layers of every run under each joint decision; None where every stage decides for itself. (D, W)

    Runs shorter than their number cannot be taken.
    """
    length = table.runs.length
    if not row.can.offloads:
        return np.zeros((1, len(length)), dtype=np.int64)
    if row.can.offload == ALL:
        return length[None]
    if row.can.offload == SAME_COUNT:
        return np.repeat(np.arange(1, int(length.max(initial=0)) + 1)[:, None], len(length), axis=1)
    return None


def part_of(table: Options, run: int, pair: int, offloaded: int) -> Part:
    """A run with a pair of marks."""
    full, marked = int(table.full[pair]), int(table.marked[pair])
    return Part(int(table.runs.length[run]), full, marked - full, offloaded)
