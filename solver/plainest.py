"""The plainest layout: of the winning row's layouts with the winner's value, the one that asks least of a framework.

Fewest offloaded layers, then fewest recomputed ones (a fully recomputed layer counts as two selective ones), then the
most even stages. CP-SAT minimises these in one sum whose weights keep their order, so the result is proven.
"""

from dataclasses import dataclass, replace

from solver.inner import build, solver
from solver.layout import FREE, Layout, Row, cost, expressible

Plainness = tuple[int, int, int]
"""Offloaded layers, recomputation (two for a full layer), most layers of a stage beyond the fewest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plainest:
    """A layout, and whether no plainer one has its value."""

    layout: Layout
    proven: bool


def plainness(layout: Layout) -> Plainness:
    """What a layout asks for; less is plainer."""
    layers = [stage.layers for stage in layout]
    return (
        sum(stage.offloaded for stage in layout),
        sum(2 * stage.full + stage.selective for stage in layout),
        max(layers) - min(layers),
    )


def plainest(
    row: Row, layout: Layout, deterministic_time: float, *, most_time: int, most_memory: int | None = None
) -> Plainest:
    """A layout of the row within these limits, which the given one meets, that none is plainer than. [ticks, KiB]"""
    if plainness(layout) <= _least(row):
        return Plainest(layout=layout, proven=True)
    if row.stages == 1 and not row.offloads and row.recompute == FREE:
        return Plainest(layout=_plainest_of_one(row, layout, most_time, most_memory), proven=True)
    from ortools.sat.python import cp_model  # noqa: PLC0415

    capacity = row.capacity if most_memory is None else tuple(min(room, most_memory) for room in row.capacity)
    model, chosen = build(replace(row, capacity=capacity, max_time=most_time), "feasible", hint=layout)
    weight = 2 * row.num_layers + 1
    fewest, most = (model.new_int_var(1, row.num_layers, name) for name in ("fewest", "most"))
    for stage in chosen.stages:
        model.add(fewest <= stage.layers)
        model.add(most >= stage.layers)
    offloaded = sum(stage.offloaded for stage in chosen.stages)
    recomputed = sum(2 * stage.full + stage.selective for stage in chosen.stages)
    model.minimize((offloaded * weight + recomputed) * weight + most - fewest)
    engine = solver(deterministic_time)
    status = engine.solve(model)
    if status not in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
        return Plainest(layout=layout, proven=False)
    found = chosen.layout(engine)
    assert cost(row, found).fits, "the model holds every limit"
    assert expressible(row, found), "the model holds what the back end can say"
    return Plainest(layout=min(found, layout, key=plainness), proven=status == cp_model.OPTIMAL)


def _plainest_of_one(row: Row, layout: Layout, most_time: int, most_memory: int | None) -> Layout:
    """The same for a single stage that offloads nothing: few enough layouts to try, plainest first."""
    held = plainness(layout)[1]
    for repeated in range(2 * int(row.needs_full), held):
        for full in range(int(row.needs_full), repeated // 2 + 1):
            other = (replace(layout[0], full=full, selective=repeated - 2 * full),)
            if other[0].full + other[0].selective > row.num_layers or (full and other[0].selective and not row.mixed):
                continue
            paid = cost(row, other)
            if paid.fits and paid.time <= most_time and (most_memory is None or paid.memory <= most_memory):
                return other
    return layout


def _least(row: Row) -> Plainness:
    """What no layout of the row is plainer than."""
    uneven = row.num_layers % row.stages != 0
    return int(row.offloads), 2 * int(row.needs_full), int(uneven)
