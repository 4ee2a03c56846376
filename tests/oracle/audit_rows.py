"""Rows of the inner problem as the audit reads them, made from the search's rows for comparison."""

import numpy as np

from solver.audit.grid import MemoryGrid, TimeGrid
from solver.audit.row import Abilities, AuditRow
from solver.layout import Row


def audit_row(row: Row) -> AuditRow:
    """The same integers in the audit's shape."""

    def one(values: object) -> np.ndarray:
        return np.array([values], dtype=float)

    return AuditRow(
        time=TimeGrid(
            layer=one(row.time_layer),
            stage=one(row.time_stage),
            tail_layer=one(row.tail_layer),
            tail_offload=one(row.tail_offload),
            tail_stage=one(row.tail_stage),
            fixed=one(row.fixed),
        ),
        memory=MemoryGrid(
            constant=one(row.constant),
            layer=one(row.layer),
            working=one(row.working),
            saving=one(row.offload_saving),
            capacity=one(row.capacity),
            host_stage=one(row.host_constant),
            host_layer=one(row.host_layer),
            host_capacity=one((0,) * row.stages),
            host_loading=np.zeros(1),
            most=tuple(bool(s) for s in row.selector),
        ),
        steps=row.micro_batches,
        virtual=row.virtual,
        order=row.order,
        can=Abilities(
            even=row.even,
            given=row.given,
            mixed=row.mixed,
            recompute=row.recompute,
            offload=row.offload,
            offloads=row.offloads,
            needs_full=row.needs_full,
        ),
        patterns=np.array(row.node_loads),
        host_rooms=np.array(row.host_capacity, dtype=float),
    )
