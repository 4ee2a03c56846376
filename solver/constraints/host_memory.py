"""Every node holds what the stages on it keep in host memory."""

from ortools.sat.python import cp_model

from solver.constraints.variables import Variables, weighted
from solver.layout import Row


def build(model: cp_model.CpModel, row: Row, variables: Variables) -> None:
    """Sum over the ranks of a node <= host capacity, for every distinct kind of node."""
    hosts = [
        row.host_constant[s] + weighted(row.host_layer[s], stage.offloaded_kinds)
        for s, stage in enumerate(variables.stages)
    ]
    for pattern, capacity in zip(row.node_loads, row.host_capacity, strict=True):
        model.add(weighted(pattern, tuple(hosts)) <= capacity)
