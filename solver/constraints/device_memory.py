"""Every instant of every stage fits the device."""

from typing import Any

from ortools.sat.python import cp_model

from solver.constraints.variables import StageVariables, Variables, weighted
from solver.layout import Row


def used(row: Row, stage: StageVariables, s: int, i: int) -> Any:
    """Memory of stage s at instant i, as an expression. [KiB]"""
    layers = sum(row.layer[s][i][j][r] * stage.by_mode[r][j] for j in range(row.kinds) for r in range(3))
    extreme = stage.most if row.selector[i] else stage.least
    working = row.working[s][i]
    work: Any = working[0] if len(set(working)) == 1 else weighted(working, extreme)
    return row.constant[s][i] + layers + work - weighted(row.offload_saving[s], stage.offloaded_kinds)


def binding_instants(row: Row, s: int) -> tuple[int, ...]:
    """Instants of a stage that no other of its instants is always at least as high as."""

    def below(a: int, b: int) -> bool:
        pairs = zip(row.layer[s][a], row.layer[s][b], strict=True)
        layers = all(x <= y for rows in pairs for x, y in zip(*rows, strict=True))
        same = row.selector[a] == row.selector[b] or max(row.working[s][a]) <= min(row.working[s][b])
        working = all(x <= y for x, y in zip(row.working[s][a], row.working[s][b], strict=True))
        return layers and same and working and row.constant[s][a] <= row.constant[s][b]

    kept: list[int] = []
    for i in range(len(row.selector)):
        if not any(
            below(i, other) and (not below(other, i) or other < i) for other in range(len(row.selector)) if other != i
        ):
            kept.append(i)
    return tuple(kept)


def build(model: cp_model.CpModel, row: Row, variables: Variables, *, peak: bool) -> None:
    """used <= capacity, and with `peak` also used <= the peak that is minimised."""
    for s, stage in enumerate(variables.stages):
        for i in binding_instants(row, s):
            amount = used(row, stage, s, i)
            model.add(amount <= row.capacity[s])
            if peak:
                model.add(amount <= variables.memory)
