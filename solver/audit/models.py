"""Rows as CP-SAT models in the text format of their protobuf, and their solutions."""

from typing import TYPE_CHECKING, Any

import numpy as np

from solver.audit.row import AuditRow, Part
from solver.communication import Communication
from solver.inner import build, solver
from solver.layout import Row

if TYPE_CHECKING:
    pass

DETERMINISTIC_TIME = 60.0


def _ints(values: Any) -> Any:
    return tuple(_ints(value) for value in values) if np.ndim(values) else int(values)


def model_row(row: AuditRow, most_time: float, most_peak: float) -> Row:
    """The row as the inner model reads it, its limits among the coefficients."""
    time, memory = row.time, row.memory
    return Row(
        stages=row.stages,
        virtual=row.virtual,
        micro_batches=row.steps,
        order=row.order,
        even=row.can.even,
        given=row.can.given,
        mixed=row.can.mixed,
        recompute=row.can.recompute,
        offload=row.can.offload,
        offloads=row.can.offloads,
        needs_full=row.can.needs_full,
        constant=_ints(memory.constant[0]),
        layer=_ints(_without(row)),
        working=_ints(memory.working[0]),
        selector=_ints(memory.most),
        offload_saving=_ints(memory.saving[0]),
        capacity=_ints(np.minimum(memory.capacity[0], most_peak)),
        host_constant=_ints(memory.host_stage[0]),
        host_layer=_ints(memory.host_layer[0]),
        host_capacity=_ints(row.host_rooms),
        node_loads=_ints(row.patterns),
        time_layer=_ints(time.layer[0]),
        time_stage=_ints(time.stage[0]),
        tail_stage=_ints(time.tail_stage[0]),
        tail_layer=_ints(time.tail_layer[0]),
        tail_offload=_ints(time.tail_offload[0]),
        fixed=int(time.fixed[0]),
        max_time=int(most_time) if np.isfinite(most_time) else None,
        communication=_communication(row),
    )


def _communication(row: AuditRow) -> Communication | None:
    if row.share is None:
        return None
    time = row.share.time
    return Communication(
        layer=_ints(time.layer[0]),
        stage=_ints(time.stage[0]),
        tail_layer=_ints(time.tail_layer[0]),
        tail_stage=_ints(time.tail_stage[0]),
        fixed=int(time.fixed[0]),
        most=row.share.most,
        rounding=row.share.rounding,
    )


def _without(row: AuditRow) -> Any:
    """Memory of layers in which a mode that is not on offer takes more than any device has."""
    layer = row.memory.layer[0].copy()
    for mode, offered in enumerate(row.can.modes):
        if not offered:
            layer[..., mode] = 2 * row.memory.capacity[0].max()
    return layer


def model_text(row: AuditRow, most_time: float, most_peak: float, *, minimise: bool, goal: str = "time") -> bytes:
    """The model of a row: any layout within the limits, or with `minimise` the best of them."""
    model, _ = build(model_row(row, most_time, most_peak), goal if minimise else "feasible")  # type: ignore[arg-type]
    return str(model.proto).encode()


def plainer_text(row: AuditRow, most_time: float, most_peak: float, layout: tuple[Part, ...]) -> bytes:
    """The model of a row within the limits, restricted to layouts that are plainer than a given one.

    Plainer: fewer offloaded layers; of equally many less recomputation, a full layer counting twice; of equally much
    a smaller difference between the longest and the shortest stage.
    """
    model, chosen = build(model_row(row, most_time, most_peak), "feasible")
    least, most = (model.new_int_var(1, len(row.order), name) for name in ("least", "most"))
    for stage in chosen.stages:
        model.add(least <= stage.layers)
        model.add(most >= stage.layers)
    over = 2 * len(row.order) + 1
    offloaded, repeated = (
        sum(stage.offloaded for stage in chosen.stages),
        sum(2 * stage.full + stage.selective for stage in chosen.stages),
    )
    layers = [part.layers for part in layout]
    stated = sum(part.offloaded for part in layout) * over + sum(2 * part.full + part.selective for part in layout)
    model.add((offloaded * over + repeated) * over + most - least < stated * over + max(layers) - min(layers))
    return str(model.proto).encode()


def solved(text: bytes) -> tuple[str, int | None]:
    """Status by CP-SAT's name, and the optimum of a model that minimises something.

    Raises:
        ValueError: the text is no model.
    """
    from ortools.sat.python import cp_model  # noqa: PLC0415

    model: cp_model.CpModel = cp_model.CpModel()
    if not model.proto.parse_text_format(text.decode()):
        raise ValueError("the model cannot be read")
    if model.validate():
        raise ValueError(f"the model is invalid: {model.validate()}")
    engine = solver(DETERMINISTIC_TIME)
    status = engine.solve(model)
    optimal = status == cp_model.OPTIMAL and model.has_objective()
    return engine.status_name(status), int(engine.objective_value + 0.5) if optimal else None
