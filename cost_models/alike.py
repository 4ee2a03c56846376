"""Rows that are alike: what reads few columns is worked out once for each combination of their values, then spread."""

from dataclasses import fields, is_dataclass, replace
from typing import Any, Final, TypeVar

import numpy as np

from cost_models.arrays import IntArray
from cost_models.strategy import Strategy

Result = TypeVar("Result")
FEW: Final = 1024
"""Rows up to which looking for equal ones costs more than it spares."""
_LARGEST: Final = 2**62


def many(strategy: Strategy) -> bool:
    """Whether there are so many rows that looking for equal ones pays."""
    return len(strategy) > FEW


def told_apart(strategy: Strategy) -> tuple[Strategy, IntArray]:
    """The rows that differ, folded, and for every row its place among them."""
    key, size = np.zeros(len(strategy), dtype=np.int64), 1
    for low, high, column in _differing(strategy).values():
        span = high - low + 1
        if size * span > _LARGEST:
            known, key = np.unique(key, return_inverse=True)
            size = len(known)
        key, size = key * span + (column - low), size * span
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    return folded(strategy).take(first), which


def folded(strategy: Strategy) -> Strategy:
    """The rows with one number for a column in which all agree: formulas are quicker with it than with many equal ones.

    The tensor-parallel degree stays a column: it says how many rows there are.
    """
    differing = _differing(strategy)
    same = [n for n in Strategy.__slots__ if n not in differing and n != "tensor_parallel"]
    return replace(strategy, **{name: int(np.ravel(getattr(strategy, name))[0]) for name in same})


def _differing(strategy: Strategy) -> dict[str, tuple[int, int, IntArray]]:
    """Least and largest value of the columns in which not all rows agree, and the columns."""
    found = {}
    for name in Strategy.__slots__:
        column = np.asarray(getattr(strategy, name))
        if column.ndim and (low := int(column.min())) != (high := int(column.max())):
            found[name] = low, high, column
    return found


def spread(value: Result, which: IntArray, few: int) -> Result:
    """Columns of `few` rows as those of all rows, each of which is alike one of the few."""
    result: Any = value
    if isinstance(value, np.ndarray):
        result = value[..., which] if value.ndim and value.shape[-1] == few else value
    elif isinstance(value, tuple):
        result = tuple(spread(part, which, few) for part in value)
    elif is_dataclass(value) and not isinstance(value, type):
        result = replace(value, **{f.name: spread(getattr(value, f.name), which, few) for f in fields(value)})
    elif isinstance(value, dict):
        result = {name: spread(part, which, few) for name, part in value.items()}
    return result  # type: ignore[no-any-return]
