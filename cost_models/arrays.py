"""One formula for scalars and arrays: the aliases and the few numeric helpers that every formula shares.

Priced paths use + - x / max and sums in a fixed order, so that the same inputs give the same bits on any machine.
"""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.int64]
Array: TypeAlias = "float | FloatArray"
"""A float, or floats of shape `(n,)`: one per candidate. The same formula takes both."""
Integer: TypeAlias = "int | IntArray"
"""An int, or ints of shape `(n,)`."""


def ceil_div(numerator: Any, denominator: Any) -> Any:
    """`ceil(numerator / denominator)` on integers, exact."""
    return -(-numerator // denominator)


def round_up(value: Any, multiple: Any) -> Any:
    """Least multiple of `multiple` that is not below `value`."""
    return ceil_div(value, multiple) * multiple


def by_candidate(n: int, *shape: int) -> FloatArray:
    """Room for a table of shape `(n, *shape)` in which the candidates of a coefficient lie next to each other.

    Formulas fill it coefficient by coefficient, tests reduce it over coefficients: each a run through memory.
    """
    return np.empty((*reversed(shape), n)).T


def taken(table: FloatArray, index: Any) -> FloatArray:
    """The candidates of a table at `index` (integers, a mask or a slice), laid out as `by_candidate` does."""
    if isinstance(index, slice):
        return table[index]
    at = np.asarray(index)
    return np.take(table.T, np.flatnonzero(at) if at.dtype == bool else at, axis=-1).T


def choose(condition: Any, chosen: Any, other: Any) -> Any:
    """`numpy.where`, several times as fast where the condition is one truth value and not an array of them."""
    if isinstance(condition, bool | np.bool_):
        return chosen if condition else other
    return np.where(condition, chosen, other)


def somewhere(condition: Any) -> bool:
    """`numpy.any`, without a call where there is one value and not an array of them."""
    return bool(condition) if isinstance(condition, bool | np.bool_ | float) else bool(np.any(condition))
