"""The nearest miss: the legal configuration that overflows the device by least, and by how much in each phase."""

from collections.abc import Mapping
from dataclasses import dataclass

from cost_models.ledger import MemoryLedger, estimate
from cost_models.specs.configuration import Configuration
from solver.problem import Problem
from solver.shortfall import least_shortfall


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestMiss:
    """What comes closest to fitting, priced by the ledger."""

    configuration: Configuration
    stage: int
    instant: str
    phase: str
    shortfall_bytes: float
    """Per device at the asked risk: how much more than it has it would need."""
    phase_shortfall_bytes: Mapping[str, float]
    """The same by phase; only phases that do not fit."""
    host_shortfall_bytes: float
    """Of the fullest node; 0 where host memory suffices."""


def nearest_miss(problem: Problem, *, host_memory: bool = True) -> NearestMiss | None:
    """The configuration whose devices lack least memory; None when none is legal.

    With `host_memory` only configurations that the nodes can hold count; where there are none, those that need least
    of a node.
    """
    best = least_shortfall(problem, host_memory=host_memory)
    if best is None and host_memory:
        best = least_shortfall(problem, host_memory=False, leanest=True)
    return None if best is None else priced(problem, best.configuration)


def priced(problem: Problem, chosen: Configuration) -> NearestMiss:
    """What a configuration lacks, by the ledger."""
    ledger = estimate(problem.job, chosen, problem.calibration, oom_risk=problem.oom_risk).memory
    stage, instant = ledger.binding
    over = {phase: need - ledger.usable_bytes for phase, need in phase_needs(ledger).items()}
    return NearestMiss(
        configuration=chosen,
        stage=stage,
        instant=instant,
        phase=ledger.phase_of[instant],
        shortfall_bytes=max(ledger.conservative_bytes - ledger.usable_bytes, 0.0),
        phase_shortfall_bytes={phase: size for phase, size in over.items() if size > 0},
        host_shortfall_bytes=max(ledger.host_node_bytes - ledger.host_usable_bytes, 0.0),
    )


def phase_needs(ledger: MemoryLedger) -> dict[str, float]:
    """What a device must hold in each phase at the asked risk. [bytes]"""
    margin = ledger.allocated_quantile * ledger.fragmentation_quantile
    needs: dict[str, float] = {}
    for stage in ledger.stages:
        for instant in stage.instants:
            need = stage.allocated(instant) * margin + ledger.context_bytes + ledger.communicator_bytes
            phase = ledger.phase_of[instant]
            needs[phase] = max(needs.get(phase, 0.0), need)
    return needs
