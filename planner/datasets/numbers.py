"""Numbers as tables print them: thousands apart by commas, a tilde before, a unit behind."""

import math
import re
from collections.abc import Mapping
from typing import Final

from cost_models.specs.fields import LARGEST_INTEGER
from planner.measurement import NUMBERS, WHOLE_NUMBERS

_PRINTED: Final = re.compile(
    r"[~≈]?\s*(\d{1,3}(?:,\d{3})+(?:\.\d+)?|[-+]?[\d.]+(?:e[-+]?\d+)?)\s*([A-Za-z/µ]*)", re.IGNORECASE
)
_GIGABYTES: Final[Mapping[str, float]] = {"gb": 1.0, "g": 1.0, "gib": 1.0, "mb": 1e-3, "mib": 2**-10, "tb": 1e3}
UNITS: Final[Mapping[str, Mapping[str, float]]] = {
    "peak_mem_gb": _GIGABYTES,
    "gpu_mem_gb": _GIGABYTES,
    "params_b": {"b": 1.0, "m": 1e-3, "t": 1e3},
    "seq_len": {"k": 1024.0, "m": 2.0**20, "tokens": 1.0},
    "step_time_s": {"s": 1.0, "sec": 1.0, "ms": 1e-3},
    "n_gpus": {"gpus": 1.0, "x": 1.0},
}
"""Units that a cell of a column may carry, as factors on the number. GB and GiB differ by what `unit_of` says."""


def read_number(key: str, cell: str) -> tuple[int | float | None, str]:
    """The number in a cell of a column and "", or None and why there is none."""
    value = _plain(cell)
    if value is None:
        value = _with_unit(key, cell)
    complaint = _complaint(key, value)
    if value is None or complaint:
        return None, f"{cell[:40]!r} is {complaint}"
    return int(value) if key in WHOLE_NUMBERS else value, ""


def _complaint(key: str, value: float | None) -> str:
    """What a number of this column must not be; "" where it may."""
    if value is None:
        return "not a number"
    whole, finite = key in WHOLE_NUMBERS, math.isfinite(value)
    rules = (
        (not finite, "not finite"),
        (value < 0 or (value == 0 and key != "zero_stage"), "not positive"),
        (whole and finite and value != int(value), "not a whole number"),
        (whole and value > LARGEST_INTEGER, f"more than {LARGEST_INTEGER}"),
    )
    return next((said for broken, said in rules if broken), "")


def unit_of(cell: str) -> str:
    """`GiB` or `GB` where the cell of a memory column says so in binary or decimal units; else ""."""
    match = _PRINTED.fullmatch(cell)
    unit = match.group(2).lower() if match else ""
    return {"gib": "GiB", "mib": "GiB", "gb": "GB", "mb": "GB", "tb": "GB"}.get(unit, "")


def _plain(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _with_unit(key: str, cell: str) -> float | None:
    match = _PRINTED.fullmatch(cell)
    if match is None or key not in (*WHOLE_NUMBERS, *NUMBERS):
        return None
    number, unit = _plain(match.group(1).replace(",", "")), match.group(2).lower()
    factor = 1.0 if not unit else UNITS.get(key, {}).get(unit)
    return None if number is None or factor is None else number * factor
