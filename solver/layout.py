"""Layouts: which layers each stage holds, recomputes and offloads; and what a layout costs in integers.

Stage s holds layers [e(s-1), e(s)) of the stage order. Of these the first `full` are fully recomputed, the next
`selective` partly, the rest not; the first `offloaded` keep their optimizer states on the host. The stage order is the
model's own order, or, with v chunks per stage, the concatenation of each stage's chunks.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from cost_models.arrays import IntArray
from cost_models.schedule import chunk_sizes, spread
from cost_models.specs.model import ModelSpec
from solver.communication import Communication, keeps
from solver.legality import OFFLOAD_LAYOUTS, RECOMPUTE_LAYOUTS

ONE_MODE, SAME_COUNT, FREE = range(3)
assert RECOMPUTE_LAYOUTS == ("one_mode", "same_count", "free")
assert OFFLOAD_LAYOUTS[1:] == RECOMPUTE_LAYOUTS[1:]
ALL_OR_NONE = 0


@dataclass(frozen=True, slots=True)
class StageLayout:
    """Layer counts of one stage."""

    layers: int
    full: int = 0
    selective: int = 0
    offloaded: int = 0


Layout = tuple[StageLayout, ...]


@cache
def stage_order(model: ModelSpec, stages: int, virtual: int) -> tuple[int, ...]:
    """Kind index of each layer, stage by stage."""
    kinds = {kind: i for i, kind in enumerate(model.layer_kinds)}
    sequence = [kinds[kind] for kind in model.layer_sequence]
    if virtual == 1:
        return tuple(sequence)
    sizes = chunk_sizes(spread(len(sequence), stages, virtual), virtual)
    starts = [0, *itertools.accumulate(sizes[stage][turn] for turn in range(virtual) for stage in range(stages))]
    order = [
        sequence[starts[turn * stages + stage] + i]
        for stage in range(stages)
        for turn in range(virtual)
        for i in range(sizes[stage][turn])
    ]
    return tuple(order)


@cache
def prefix_counts(order: tuple[int, ...], kinds: int) -> IntArray:
    """Layers of each kind among the first x of the stage order; shape (L + 1, kinds)."""
    one_hot = np.eye(kinds, dtype=np.int64)[list(order)]
    return np.concatenate([np.zeros((1, kinds), dtype=np.int64), np.cumsum(one_hot, axis=0)])


@cache
def node_loads(ranks_per_stage: int, nodes: tuple[tuple[int, int], ...]) -> IntArray:
    """Ranks of each stage on a node, for every distinct kind of node; shape (patterns, stages).

    `nodes`: stages of each run of stages in one pool, and the devices of its nodes. Ranks are ordered tp, cp, dp, pp:
    the ranks of a stage are consecutive.
    """
    total, start, found = sum(stages for stages, _ in nodes), 0, []
    for stages, gpus_per_node in nodes:
        loads = _loads(ranks_per_stage, stages, gpus_per_node)
        found.append(np.pad(loads, ((0, 0), (start, total - start - stages))))
        start += stages
    return np.concatenate(found)


def _loads(ranks_per_stage: int, stages: int, gpus_per_node: int) -> IntArray:
    if ranks_per_stage % gpus_per_node == 0:
        return np.eye(stages, dtype=np.int64) * gpus_per_node
    total = ranks_per_stage * stages
    starts = np.arange(0, total, gpus_per_node)[:, None]
    ends = np.minimum(starts + gpus_per_node, total)
    first = np.arange(stages)[None, :] * ranks_per_stage
    loads = np.clip(np.minimum(ends, first + ranks_per_stage) - np.maximum(starts, first), 0, None)
    return np.unique(loads, axis=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One candidate's integers: everything the inner problem knows. S stages, I instants, J kinds, R modes."""

    stages: int
    virtual: int
    micro_batches: int
    order: tuple[int, ...]
    even: bool
    mixed: bool
    recompute: int
    """Index of RECOMPUTE_LAYOUTS."""
    offload: int
    """Index of OFFLOAD_LAYOUTS."""
    offloads: bool
    """At least one layer's optimizer states live on the host."""
    needs_full: bool
    """At least one layer is fully recomputed (an interval above 1 means nothing without)."""
    constant: tuple[tuple[int, ...], ...]  # (S, I)
    layer: tuple[tuple[tuple[tuple[int, ...], ...], ...], ...]  # (S, I, J, R)
    working: tuple[tuple[tuple[int, ...], ...], ...]  # (S, I, R)
    selector: tuple[int, ...]  # (I,)
    offload_saving: tuple[tuple[int, ...], ...]  # (S, J)
    capacity: tuple[int, ...]  # (S,)
    host_constant: tuple[int, ...]  # (S,)
    host_layer: tuple[tuple[int, ...], ...]  # (S, J)
    host_capacity: tuple[int, ...]  # (patterns,)
    node_loads: tuple[tuple[int, ...], ...]  # (patterns, S)
    time_layer: tuple[tuple[tuple[int, ...], ...], ...]  # (S, J, R)
    time_stage: tuple[int, ...]  # (S,)
    tail_stage: tuple[int, ...]  # (S,)
    tail_layer: tuple[tuple[int, ...], ...]  # (S, J)
    tail_offload: tuple[tuple[int, ...], ...]  # (S, J)
    fixed: int
    max_time: int | None = None
    """Side constraint on `time_value`."""
    given: tuple[int, ...] | None = None
    """Layers of each stage, where they are given and not equal."""
    communication: Communication | None = None
    """Side constraint on its share of the step."""

    @property
    def num_layers(self) -> int:
        """Of the model."""
        return len(self.order)

    @property
    def kinds(self) -> int:
        """Layer kinds."""
        return len(self.time_layer[0])


def counts(row: Row, start: int, end: int) -> tuple[int, ...]:
    """Layers by kind in [start, end) of the stage order."""
    prefix = prefix_counts(row.order, row.kinds)
    return tuple(int(x) for x in prefix[end] - prefix[start])


def modes(stage: StageLayout) -> tuple[int, int]:
    """The least and the most recomputing mode present in a stage."""
    present = [
        mode
        for mode, n in ((0, stage.layers - stage.full - stage.selective), (1, stage.selective), (2, stage.full))
        if n
    ]
    return present[0], present[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a layout costs in integers."""

    time: int
    """v times the step, in ticks: (v m - 1) max t + sum t + v max g + v c."""
    memory: int
    """Peak over stages and instants, KiB."""
    host: int
    """Fullest node, KiB."""
    fits: bool


def _dot(coefficients: Sequence[int], amounts: Sequence[int]) -> int:
    return sum(a * b for a, b in zip(coefficients, amounts, strict=True))


def cost(row: Row, layout: Layout) -> Cost:
    """Exact integer cost of a layout; the solver's own check of every incumbent."""
    times, tails, peaks, hosts, start, fits = [], [], [], [], 0, True
    for s, stage in enumerate(layout):
        a, b, end = start + stage.full, start + stage.full + stage.selective, start + stage.layers
        by_mode = [counts(row, b, end), counts(row, a, b), counts(row, start, a)]
        offloaded, all_ = counts(row, start, start + stage.offloaded), counts(row, start, end)
        least, most = modes(stage)
        times.append(
            row.time_stage[s] + sum(row.time_layer[s][j][r] * by_mode[r][j] for j in range(row.kinds) for r in range(3))
        )
        tails.append(row.tail_stage[s] + _dot(row.tail_layer[s], all_) + _dot(row.tail_offload[s], offloaded))
        saved = _dot(row.offload_saving[s], offloaded)
        for i, selector in enumerate(row.selector):
            used = sum(row.layer[s][i][j][r] * by_mode[r][j] for j in range(row.kinds) for r in range(3))
            peaks.append(row.constant[s][i] + used + row.working[s][i][most if selector else least] - saved)
            fits &= peaks[-1] <= row.capacity[s]
        hosts.append(row.host_constant[s] + _dot(row.host_layer[s], offloaded))
        start = end
    v, m = row.virtual, row.micro_batches
    time = (v * m - 1) * max(times) + sum(times) + v * (max(tails) + row.fixed)
    nodes = [_dot(pattern, hosts) for pattern in row.node_loads]
    fits &= all(used <= most for used, most in zip(nodes, row.host_capacity, strict=True))
    fits &= row.max_time is None or time <= row.max_time
    fits &= keeps(row, layout, times, tails, time)
    return Cost(time=time, memory=max(peaks), host=max(nodes), fits=fits)


def expressible(row: Row, layout: Layout) -> bool:
    """Whether the back end of the row can lay this out."""
    v = row.virtual
    checks = [
        sum(stage.layers for stage in layout) == row.num_layers,
        not row.even or len({stage.layers for stage in layout}) == 1,
        row.given is None or row.given == tuple(stage.layers for stage in layout),
        row.mixed or all(stage.full == 0 or stage.selective == 0 for stage in layout),
        row.offloads == any(stage.offloaded for stage in layout),
        not row.needs_full or any(stage.full for stage in layout),
    ]
    if row.recompute == ONE_MODE:
        checks.append(len({mode for stage in layout for mode in modes(stage)}) == 1)
    if row.recompute == SAME_COUNT:
        selective = all(stage.selective == stage.layers for stage in layout)
        same = (
            all(stage.selective == 0 and stage.full == layout[0].full for stage in layout) and layout[0].full % v == 0
        )
        checks.append(selective or same)
    if row.offload == ALL_OR_NONE and row.offloads:
        checks.append(all(stage.offloaded == stage.layers for stage in layout))
    if row.offload == SAME_COUNT:
        checks.append(len({stage.offloaded for stage in layout}) == 1)
    return all(checks)
