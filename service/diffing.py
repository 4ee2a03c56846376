"""Where two plans differ: what was asked, what was chosen, what was predicted, what was measured."""

from collections.abc import Iterator
from typing import Any, Final

from cost_models.specs.base import Spec
from planner.plan import Plan
from service.measuring import Measurement

_DETAIL: Final = frozenset({"per_stage", "breakdown_bytes", "phases"})
"""Of a prediction: whole ledgers, which the plans themselves hold."""


class Change(Spec):
    """One place where two plans differ."""

    path: str
    left: Any = None
    right: Any = None
    ratio: float | None = None
    """Right over left, of numbers."""


class PlanDiff(Spec):
    """From the plan on the left to the one on the right."""

    left: str
    right: str
    request: tuple[Change, ...]
    configuration: tuple[Change, ...]
    prediction: tuple[Change, ...]
    provenance: tuple[Change, ...]
    left_measured: tuple[Measurement, ...]
    right_measured: tuple[Measurement, ...]


def diff(
    left: Plan, right: Plan, left_measured: tuple[Measurement, ...], right_measured: tuple[Measurement, ...]
) -> PlanDiff:
    """Every value that differs, by its path."""
    one, other = left.to_dict(), right.to_dict()
    parts = {name: tuple(_changes(one[name], other[name], "")) for name in ("request", "configuration", "provenance")}
    return PlanDiff(
        left=left.envelope.id,
        right=right.envelope.id,
        prediction=tuple(_changes(one["prediction"], other["prediction"], "", leave_out=_DETAIL)),
        left_measured=left_measured,
        right_measured=right_measured,
        **parts,
    )


def _changes(left: Any, right: Any, path: str, leave_out: frozenset[str] = frozenset()) -> Iterator[Change]:
    """Leaves that differ; what one side lacks is told as a whole."""
    if isinstance(left, dict) and isinstance(right, dict):
        for key in dict.fromkeys((*left, *right)):
            if key not in leave_out:
                yield from _changes(left.get(key), right.get(key), f"{path}/{key}", leave_out)
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for index, (one, other) in enumerate(zip(left, right, strict=True)):
            yield from _changes(one, other, f"{path}/{index}", leave_out)
    elif left != right:
        yield Change(path=path or "/", left=left, right=right, ratio=_ratio(left, right))


def _ratio(left: Any, right: Any) -> float | None:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (left, right))
    return right / left if numbers and left else None
