"""The exact search for a layout of one row within limits: shortest paths through the layers, stage by stage.

A layout is a path from layer 0 to layer L that takes one run of layers per stage. Its step is
`slope x longest + sum + v x (longest tail + fixed)`: for given limits on the longest run and the longest tail the rest
is a shortest path. Boxes of these two limits are bounded and halved until one holds a layout or none is left. The joint
decisions of all stages (how many layers recompute in each, how many offload) are taken one after the other.

This is a second formulation of the inner problem: it shares neither bounds nor constraints with the search.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from cost_models.arrays import FloatArray
from solver.audit.options import Options, joint_offloads, joint_pairs, options, part_of
from solver.audit.row import AuditRow, Part

Layout = tuple[Part, ...]


class Unsettled(Exception):
    """Stages that share a node compete for its memory, which paths cannot say; another argument must decide."""


def find(row: AuditRow, most_time: float, most_peak: float) -> Layout | None:
    """A layout with v times the step and a peak within these limits, or None, which is then proven. [ticks, KiB]

    Raises:
        Unsettled: neither.
    """
    rooms = np.minimum(most_peak, row.memory.capacity[0])
    slowest = _slowest(row, most_time)
    table = options(row, _longest(row, slowest))
    unsettled = False
    for pairs, counts in _decisions(row, table, slowest, rooms):
        for network in _networks(row, table, pairs, counts, rooms):
            try:
                found = _search(network, most_time)
            except Unsettled:
                unsettled = True
                continue
            if found is not None:
                return found
    if unsettled:
        raise Unsettled
    return None


def _slowest(row: AuditRow, most_time: float) -> float:
    """Longest run within the time when all other layers run at their fastest. [ticks]"""
    if row.slope == 0:
        return float("inf")
    least = float(row.time.stage.sum() + row.before[-1] @ row.time.layer[0].min(axis=(0, 2)))
    return (most_time - least - row.virtual * (_least_tail(row) + float(row.time.fixed[0]))) / row.slope


def _least_tail(row: AuditRow) -> float:
    each = min(0.0, float(row.time.tail_layer.min())) + min(0.0, float(row.time.tail_offload.min()))
    return float(row.time.tail_stage.max()) + each * len(row.order)


def _longest(row: AuditRow, slowest: float) -> int:
    """Most layers of a stage whose run is no longer than that."""
    if row.can.even or row.stages == 1:
        return len(row.order) // row.stages
    if row.can.given is not None:
        return max(row.can.given)
    total, each = len(row.order) - row.stages + 1, float(row.time.layer.min())
    if not np.isfinite(slowest) or each <= 0:
        return total
    return int(min(total, max(1, (slowest - float(row.time.stage.min())) // each + 1)))


def _decisions(row: AuditRow, table: Options, slowest: float, rooms: FloatArray) -> Iterator[tuple[Any, Any]]:
    """Joint decisions that leave every stage a run, and together runs enough for all layers."""
    pairs, counts = joint_pairs(row, table), joint_offloads(row, table)
    length, runs = table.runs.length, np.arange(len(table.runs.length))
    quick: Any = table.time <= slowest
    for count in [None] if counts is None else counts:
        room = _room(row, table, count, rooms)
        taken = np.ones(len(length), dtype=bool) if count is None else count <= length
        if pairs is None:
            possible = (quick & (table.need <= room[:, :, None])).any(axis=2)[:, None]
        else:
            possible = (pairs >= 0) & quick[:, runs, pairs] & (table.need[:, runs, pairs] <= room[:, None])
        longest = np.where(possible & taken, length, -len(row.order)).max(axis=2)
        for index in np.nonzero(longest.sum(axis=0) >= len(row.order))[0]:
            yield None if pairs is None else pairs[index], count


def _room(row: AuditRow, table: Options, count: Any, rooms: FloatArray) -> FloatArray:
    """Memory that the peak of a run may take before anything is offloaded; any, where that is open. (S, W)"""
    if count is None:
        return np.full((row.stages, len(table.runs.length)), np.inf)
    result: FloatArray = rooms[:, None] + row.memory.saving[0] @ _gone(table, count).T
    return result


def _gone(table: Options, count: Any) -> FloatArray:
    """Offloaded layers of every run by kind. (W, J)"""
    before = table.runs.before
    result: FloatArray = before[np.arange(len(before)), np.minimum(count, before.shape[1] - 1)]
    return result


@dataclass(frozen=True, slots=True)
class _Network:
    """Arcs of a joint decision. D: numbers of offloaded layers to choose from in a run."""

    row: AuditRow
    table: Options
    time: FloatArray  # (D, S, W); infinite where nothing fits
    pair: Any  # (D, S, W)
    offloaded: Any  # (D, W)
    tail: FloatArray  # (D, S, W)


def _networks(row: AuditRow, table: Options, pairs: Any, count: Any, rooms: FloatArray) -> Iterator[_Network]:
    """The arcs of a decision; where some stage must recompute or offload, one network for each stage that might."""
    recomputing = range(row.stages) if pairs is None and row.can.needs_full else (None,)
    offloading = range(row.stages) if count is None else (None,)
    for recomputes, offloads in itertools.product(recomputing, offloading):
        allowed = np.ones((row.stages, 1, len(table.full)), dtype=bool)
        if recomputes is not None:
            allowed[recomputes] = table.full > 0
        yield _network(row, table, pairs, count, rooms, np.where(allowed, table.time, np.inf), offloads)


def _network(
    row: AuditRow, table: Options, pairs: Any, count: Any, rooms: FloatArray, time: FloatArray, offloads: int | None
) -> _Network:
    length, runs = table.runs.length, np.arange(len(table.runs.length))
    counts = count[None] if count is not None else np.minimum(np.arange(length.max() + 1)[:, None], length)
    tail = row.time.tail_stage[0][:, None] + row.time.tail_layer[0] @ table.runs.before[runs, length].T
    times, places, tails, hosts = [], [], [], []
    for number in counts:
        gone, room = _gone(table, number), _room(row, table, number, rooms)
        if pairs is None:
            each = np.where(table.need <= room[:, :, None], time, np.inf)
            place, best = each.argmin(axis=2), each.min(axis=2)
        else:
            place = np.broadcast_to(pairs, (row.stages, len(pairs)))
            best = np.where((pairs >= 0) & (table.need[:, runs, pairs] <= room), time[:, runs, pairs], np.inf)
        best = np.where(number <= length, best, np.inf)
        if offloads is not None:
            best[offloads, number == 0] = np.inf
        places.append(place)
        times.append(best)
        tails.append(tail + row.time.tail_offload[0] @ gone.T)
        hosts.append(row.memory.host_stage[0][:, None] + row.memory.host_layer[0] @ gone.T)
    return _Network(
        row, table, _hosted(row, np.stack(times), np.stack(hosts)), np.stack(places), counts, np.stack(tails)
    )


def _hosted(row: AuditRow, time: FloatArray, host: FloatArray) -> FloatArray:
    """Arcs without those whose node overflows even when its other stages keep the least."""
    inside = np.where(np.isfinite(time), host, np.inf)
    least = inside.min(axis=(0, 2))
    if np.isinf(least).any():
        return time
    for pattern, room in zip(row.patterns, row.host_rooms, strict=True):
        others = (pattern @ least) - pattern * least
        alone = pattern[None, :, None] * host + others[None, :, None]
        time = np.where((pattern[None, :, None] > 0) & (alone > room), np.inf, time)
    return time


def _search(network: _Network, most: float) -> Layout | None:
    """Boxes (least and most of the longest run, the same of the longest tail), bounded and halved."""
    row = network.row
    finite = np.isfinite(network.time)
    if not finite.any(axis=(0, 2)).all():
        return None
    times, tails = np.unique(network.time[finite]), np.unique(network.tail[finite])
    boxes = [(0, len(times) - 1, 0, len(tails) - 1)]
    unsettled = False
    while boxes:
        low, high, near, far = boxes.pop()
        path = _shortest(network, float(times[high]), float(tails[far]))
        if path is None:
            continue
        total, places = path
        bound = row.slope * times[low] + total + row.virtual * (tails[near] + row.time.fixed[0])
        if bound > most:
            continue
        longest, tail, layout = _read(network, places, float(tails[far]))
        if row.slope * longest + total + row.virtual * (tail + row.time.fixed[0]) <= most:
            if row.hosted(layout):
                return layout
            unsettled = True
            continue
        # No path of the box has a smaller sum, so a better one has a shorter longest run or a shorter longest tail.
        reached, ended = int(np.searchsorted(times, longest)), int(np.searchsorted(tails, tail))
        middle = (low + reached - 1) // 2
        boxes += [
            (max(low, reached), high, near, ended - 1),
            (middle + 1, reached - 1, near, far),
            (low, middle, near, far),
        ]
        boxes = [box for box in boxes if box[0] <= box[1] and box[2] <= box[3]]
    if unsettled:
        raise Unsettled
    return None


def _arcs(network: _Network, longest: float, tail: float) -> tuple[FloatArray, Any]:
    """The fastest way of each run within the limits, and how much it offloads. (S, W)"""
    time = np.where((network.time <= longest) & (network.tail <= tail), network.time, np.inf)
    how = time.argmin(axis=0)
    return np.take_along_axis(time, how[None], axis=0)[0], how


def _shortest(network: _Network, longest: float, tail: float) -> tuple[float, list[tuple[int, int]]] | None:
    """Least sum of times of a path whose runs are within the limits, and its runs with how much they offload."""
    time, how = _arcs(network, longest, tail)
    at = network.table.runs.at
    padded = np.concatenate([time, np.full((len(time), 1), np.inf)], axis=1)
    reach = np.full(len(at), np.inf)
    reach[0] = 0.0
    back = []
    for stage in range(len(time)):
        through = reach[:, None] + padded[stage][at]
        back.append(through.argmin(axis=0))
        reach = through.min(axis=0)
    if not np.isfinite(reach[-1]):
        return None
    end, places = len(at) - 1, list[tuple[int, int]]()
    for stage in reversed(range(len(time))):
        start = int(back[stage][end])
        run = int(at[start, end])
        places.append((run, int(how[stage, run])))
        end = start
    return float(reach[-1]), places[::-1]


def _read(network: _Network, places: list[tuple[int, int]], tail: float) -> tuple[float, float, Layout]:
    """The longest run, the longest tail and the layout of a path."""
    times = [network.time[d, s, w] for s, (w, d) in enumerate(places)]
    tails = [network.tail[d, s, w] for s, (w, d) in enumerate(places)]
    layout = tuple(
        part_of(network.table, w, int(network.pair[d, s, w]), int(network.offloaded[d, w]))
        for s, (w, d) in enumerate(places)
    )
    return float(max(times)), float(max(tails)), layout
