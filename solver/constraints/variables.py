"""The decisions of the inner problem: layer counts per stage, and linear expressions over them."""

from dataclasses import dataclass
from typing import Any

from ortools.sat.python import cp_model

from solver.layout import Layout, Row, StageLayout, prefix_counts


@dataclass(frozen=True, slots=True, kw_only=True)
class StageVariables:
    """One stage. `by_mode[r][j]`, `offloaded_kinds[j]` and `kinds[j]` are layers of kind j as linear expressions."""

    layers: Any
    full: Any
    selective: Any
    offloaded: Any
    has: tuple[Any, Any, Any]
    """Booleans: some layer is in mode none, selective, full."""
    least: tuple[Any, Any, Any]
    """One-hot: the least recomputing mode present."""
    most: tuple[Any, Any, Any]
    """One-hot: the most recomputing mode present."""
    kinds: tuple[Any, ...]
    by_mode: tuple[tuple[Any, ...], ...]
    offloaded_kinds: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variables:
    """All stages, and the maxima of the objective."""

    stages: tuple[StageVariables, ...]
    times: tuple[Any, ...]
    """Micro-batch time of each stage."""
    slowest: Any
    tail: Any
    time: Any
    """v times the step, as an expression."""
    memory: Any
    """Peak memory; constrained only where it is the objective."""

    def layout(self, solver: cp_model.CpSolver) -> Layout:
        """The layout of a solved model."""
        value = solver.value
        return tuple(
            StageLayout(
                layers=int(value(s.layers)),
                full=int(value(s.full)),
                selective=int(value(s.selective)),
                offloaded=int(value(s.offloaded)),
            )
            for s in self.stages
        )

    def hint(self, model: cp_model.CpModel, layout: Layout) -> None:
        """Start the search from a layout."""
        for variables, stage in zip(self.stages, layout, strict=True):
            for variable, value in (
                (variables.layers, stage.layers),
                (variables.full, stage.full),
                (variables.selective, stage.selective),
                (variables.offloaded, stage.offloaded),
            ):
                if isinstance(variable, cp_model.IntVar):
                    model.add_hint(variable, value)


class _Positions:
    """Layers by kind before a position of the stage order."""

    def __init__(self, model: cp_model.CpModel, row: Row) -> None:
        self.model, self.row = model, row
        self.prefix = prefix_counts(row.order, row.kinds)
        self.known: dict[str, tuple[Any, ...]] = {}

    def before(self, position: Any, name: str) -> tuple[Any, ...]:
        if self.row.kinds == 1:
            return (position,)
        if isinstance(position, int):
            return tuple(int(x) for x in self.prefix[position])
        if name not in self.known:
            at = self.model.new_int_var(0, self.row.num_layers, name)
            self.model.add(at == position)
            columns = []
            for kind in range(self.row.kinds):
                values = [int(x) for x in self.prefix[:, kind]]
                count = self.model.new_int_var(0, values[-1], f"{name}_kind{kind}")
                self.model.add_element(at, values, count)
                columns.append(count)
            self.known[name] = tuple(columns)
        return self.known[name]


def _minus(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(x - y for x, y in zip(a, b, strict=True))


def _extremes(model: cp_model.CpModel, has: tuple[Any, Any, Any], name: str) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """One-hot least and most recomputing mode from which modes are present."""
    none, selective, full = has
    least_full, most_none = model.new_bool_var(f"{name}_least2"), model.new_bool_var(f"{name}_most0")
    model.add(least_full >= 1 - none - selective)
    model.add(least_full <= 1 - none)
    model.add(least_full <= 1 - selective)
    model.add(most_none >= 1 - full - selective)
    model.add(most_none <= 1 - full)
    model.add(most_none <= 1 - selective)
    return (none, 1 - none - least_full, least_full), (most_none, 1 - most_none - full, full)


def build(model: cp_model.CpModel, row: Row) -> Variables:
    """Counts of every stage, with the definitions that tie them together."""
    total, stages, positions = row.num_layers, row.stages, _Positions(model, row)
    given = (total // stages,) * stages if row.even or stages == 1 else row.given
    longest = max(given) if given is not None else total - stages + 1
    start: Any = 0
    built = []
    for s in range(stages):
        layers: Any = given[s] if given is not None else model.new_int_var(1, longest, f"layers{s}")
        full = model.new_int_var(0, longest, f"full{s}")
        selective = model.new_int_var(0, longest, f"selective{s}")
        offloaded: Any = model.new_int_var(0, longest, f"offloaded{s}") if row.offloads else 0
        has: Any = tuple(model.new_bool_var(f"has{r}_{s}") for r in range(3))
        for count, present in zip((layers - full - selective, selective, full), has, strict=True):
            model.add(count >= present)
            model.add(count <= longest * present)
        least, most = _extremes(model, has, f"stage{s}")
        end = start + layers
        marks = [
            positions.before(at, f"{name}{s}")
            for at, name in ((start, "start"), (start + full, "full_end"), (start + full + selective, "selective_end"))
        ]
        last = positions.before(end, f"start{s + 1}")
        kept = positions.before(start + offloaded, f"offloaded_end{s}") if row.offloads else marks[0]
        built.append(
            StageVariables(
                layers=layers,
                full=full,
                selective=selective,
                offloaded=offloaded,
                has=has,
                least=least,
                most=most,
                kinds=_minus(last, marks[0]),
                by_mode=(_minus(last, marks[2]), _minus(marks[2], marks[1]), _minus(marks[1], marks[0])),
                offloaded_kinds=_minus(kept, marks[0]),
            )
        )
        start = end
    slowest_layer = max(max(modes) for kinds in row.time_layer for modes in kinds)
    longest_time = max(row.time_stage) + longest * slowest_layer
    tails, moves = [t for kinds in row.tail_layer for t in kinds], [t for kinds in row.tail_offload for t in kinds]
    most_tail = max(row.tail_stage) + longest * (max(0, *tails) + max(0, *moves))
    least_tail = min(row.tail_stage) + longest * (min(0, *tails) + min(0, *moves))
    slowest, tail = model.new_int_var(0, longest_time, "slowest"), model.new_int_var(least_tail, most_tail, "tail")
    times = [model.new_int_var(0, longest_time, f"time{s}") for s in range(stages)]
    for s, stage in enumerate(built):
        model.add(times[s] == stage_time(row, stage, s))
        model.add(slowest >= times[s])
    scale = row.virtual * row.micro_batches - 1
    time = scale * slowest + sum(times) + row.virtual * (tail + row.fixed)
    return Variables(
        stages=tuple(built),
        times=tuple(times),
        slowest=slowest,
        tail=tail,
        time=time,
        memory=model.new_int_var(0, max(row.capacity), "memory"),
    )


def weighted(coefficients: tuple[int, ...], amounts: tuple[Any, ...]) -> Any:
    """Sum of coefficients times amounts."""
    return sum(c * a for c, a in zip(coefficients, amounts, strict=True) if c)


def stage_time(row: Row, stage: StageVariables, s: int) -> Any:
    """Micro-batch time of stage s, as an expression."""
    modes = (sum(row.time_layer[s][j][r] * stage.by_mode[r][j] for j in range(row.kinds)) for r in range(3))
    return row.time_stage[s] + sum(modes)
