"""Plan again what a plan was made for, after a run of it has shown what the request did not say."""

from collections.abc import Mapping
from typing import Any, Final

from cost_models.calibration import Calibration
from cost_models.errors import BrokenRule
from cost_models.specs.choices import Precision
from planner import calibrations
from planner.domain import Domain
from planner.plan import Plan
from planner.planning import Asked, answered
from planner.resolve import ResolvedRequest

LAYOUT: Final = ("tensor_parallel", "pipeline_parallel", "data_parallel", "zero_stage")
"""Decisions that say which process holds which part of a checkpoint."""


def replan(
    before: Plan,
    *,
    max_memory_bytes: int | None = None,
    precision: Precision | None = None,
    calibration: Calibration | None = None,
) -> Plan:
    """The best plan of the same question on the same back end and layout, within less memory or in another precision.

    Batch size, back end and layout stay, so that a checkpoint goes on and the loss with it.

    Raises:
        BrokenRule: the plan has no configuration to start from.
    """
    if before.configuration is None:
        raise BrokenRule(f"the plan {before.envelope.id} has no configuration, so there is nothing to plan again")
    c, question = before.configuration, before.request
    kept: dict[str, Any] = {name: Domain(values=(getattr(c, name),)) for name in LAYOUT}
    changes: dict[str, Any] = {**kept, "precision": Domain(values=(precision or c.precision,))}
    if max_memory_bytes is not None:
        stated = question.constraints.max_memory_bytes
        changes["max_memory_bytes"] = max_memory_bytes if stated is None else min(stated, max_memory_bytes)
    parts: Mapping[str, Any] = {name: getattr(question, name) for name in type(question).model_fields}
    resolved = ResolvedRequest(
        **{
            **parts,
            "backends": (c.backend.name,),
            "training": question.training.model_copy(
                update={"precision": precision or c.precision, "global_batch_size": c.global_batch_size}
            ),
            "constraints": question.constraints.model_copy(update=changes),
            "configuration": None,
        },
        assumptions=(),
    )
    return answered(Asked(resolved, calibration or calibrations.current()))
