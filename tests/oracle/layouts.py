"""Every layout of a small row and its cost, from the definition of the tables alone: one list entry per layer."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from solver.layout import Row, StageLayout


@dataclass(frozen=True)
class Paid:
    """What a layout costs, counted layer by layer."""

    time: int
    memory: int
    fits: bool


def _splits(row: Row) -> Iterator[tuple[int, ...]]:
    if row.even or row.stages == 1:
        yield (row.num_layers // row.stages,) * row.stages
        return
    if row.given is not None:
        yield row.given
        return
    for cuts in itertools.combinations(range(1, row.num_layers), row.stages - 1):
        edges = (0, *cuts, row.num_layers)
        yield tuple(b - a for a, b in itertools.pairwise(edges))


def _recomputes(row: Row, split: tuple[int, ...]) -> Iterator[tuple[tuple[int, int], ...]]:
    if row.recompute == 0:
        yield from (tuple((mode(n)) for n in split) for mode in (lambda n: (0, 0), lambda n: (0, n), lambda n: (n, 0)))
    elif row.recompute == 1:
        yield tuple((0, n) for n in split)
        yield from (tuple((f, 0) for _ in split) for f in range(0, min(split) + 1, row.virtual))
    else:
        each = [
            [(f, s) for f in range(n + 1) for s in range(n + 1 - f) if row.mixed or f == 0 or s == 0] for n in split
        ]
        yield from itertools.product(*each)


def _offloads(row: Row, split: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    if not row.offloads:
        yield (0,) * row.stages
    elif row.offload == 0:
        yield split
    elif row.offload == 1:
        yield from ((n,) * row.stages for n in range(1, min(split) + 1))
    else:
        yield from (o for o in itertools.product(*(range(n + 1) for n in split)) if any(o))


def layouts(row: Row) -> Iterator[tuple[StageLayout, ...]]:
    """Every layout that the row's back end can say."""
    for split in _splits(row):
        for recompute in _recomputes(row, split):
            if row.needs_full and not any(full for full, _ in recompute):
                continue
            for offloaded in _offloads(row, split):
                yield tuple(StageLayout(n, f, s, o) for n, (f, s), o in zip(split, recompute, offloaded, strict=True))


def pay(row: Row, layout: tuple[StageLayout, ...]) -> Paid:
    """Cost of a layout, by walking over its layers."""
    start, times, tails, peaks, hosts, fits = 0, [], [], [], [], True
    for s, stage in enumerate(layout):
        kinds = row.order[start : start + stage.layers]
        modes = [2] * stage.full + [1] * stage.selective + [0] * (stage.layers - stage.full - stage.selective)
        times.append(row.time_stage[s] + sum(row.time_layer[s][k][m] for k, m in zip(kinds, modes, strict=True)))
        host_kinds = kinds[: stage.offloaded]
        tails.append(
            row.tail_stage[s]
            + sum(row.tail_layer[s][k] for k in kinds)
            + sum(row.tail_offload[s][k] for k in host_kinds)
        )
        for i in range(len(row.selector)):
            used = row.constant[s][i] + sum(row.layer[s][i][k][m] for k, m in zip(kinds, modes, strict=True))
            extreme = modes[0] if row.selector[i] else modes[-1]
            peaks.append(used + row.working[s][i][extreme] - sum(row.offload_saving[s][k] for k in host_kinds))
            fits = fits and peaks[-1] <= row.capacity[s]
        hosts.append(row.host_constant[s] + sum(row.host_layer[s][k] for k in host_kinds))
        start += stage.layers
    v, m = row.virtual, row.micro_batches
    time = v * m * max(times) - max(times) + sum(times) + v * max(tails) + v * row.fixed
    for pattern, capacity in zip(row.node_loads, row.host_capacity, strict=True):
        fits = fits and sum(n * h for n, h in zip(pattern, hosts, strict=True)) <= capacity
    fits = fits and (row.max_time is None or time <= row.max_time)
    return Paid(time, max(peaks), fits)
