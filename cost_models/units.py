"""Human units are parsed and printed here and nowhere else. GB = 10^9 and GiB = 2^30, always."""

import math
import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from cost_models.errors import SpecError

KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40

_BYTES = {
    "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB,
}  # fmt: skip
_BITS_PER_SECOND = {"kb/s": 10**3, "Mb/s": 10**6, "Gb/s": 10**9, "Tb/s": 10**12, "Gbit/s": 10**9, "Gbps": 10**9}
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z/]*)\s*")


LARGEST_QUANTITY = 2**53 - 1
"""Largest accepted size [bytes] or rate [bytes/s]: 9 PB, far above any node's and exact in every number format."""
_LONGEST_SHOWN = 40


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _within(number: float, value: Any, what: str) -> float:
    """`number`, unless it is beyond every machine or no number. Which may be negative or 0, the fields say."""
    if not abs(number) <= LARGEST_QUANTITY:
        rate = "/s" if what == "bandwidth" else ""
        raise SpecError(f"{what} {_shown(value)} exceeds {LARGEST_QUANTITY} bytes{rate}, the largest that is read")
    return number


def _split(text: str, what: str, units: str) -> tuple[float, str]:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise SpecError(f"{what} {_shown(text)} is not a number with a unit such as {units}")
    number = float(match.group(1))
    if not math.isfinite(number):
        raise SpecError(f"{what} {_shown(text)} is larger than a number can be")
    return number, match.group(2)


def parse_bytes(value: Any) -> int:
    """`80GiB`, `1TiB`, `80 GB` or a plain number of bytes. [bytes]

    Raises:
        SpecError: unknown unit, or not a number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise SpecError(f"{_shown(value)} is not a memory size")
    if not isinstance(value, str):
        return int(_within(value, value, "memory size"))
    number, unit = _split(value, "memory size", "80GiB")
    if unit not in _BYTES | {"": 1}:
        raise SpecError(f"memory size {_shown(value)}: unknown unit {_shown(unit)}; known are {', '.join(_BYTES)}")
    return round(_within(number * (_BYTES | {"": 1})[unit], value, "memory size"))


def parse_bandwidth(value: Any) -> float:
    """`400Gb/s` (bits), `50GB/s` (bytes) or a plain number of bytes per second. [bytes/s]

    Raises:
        SpecError: unknown unit, or not a number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise SpecError(f"{_shown(value)} is not a bandwidth")
    if not isinstance(value, str):
        return float(_within(value, value, "bandwidth"))
    number, unit = _split(value, "bandwidth", "400Gb/s or 50GB/s")
    if unit in _BITS_PER_SECOND:
        number = number * _BITS_PER_SECOND[unit] / 8
    elif unit.endswith("/s") and unit[:-2] in _BYTES:
        number *= _BYTES[unit[:-2]]
    elif unit:
        raise SpecError(
            f"bandwidth {_shown(value)}: unknown unit {_shown(unit)}; write 400Gb/s (bits) or 50GB/s (bytes)"
        )
    return _within(number, value, "bandwidth")


def gib(size: float) -> str:
    """A size as people read it: `12.34 GiB`."""
    return f"{size / GIB:.2f} GiB"


def _within_pydantic(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The parser with errors that pydantic understands, so that its report names the field."""

    def parsed(value: Any) -> Any:
        try:
            return parse(value)
        except SpecError as error:
            raise ValueError(str(error)) from error

    return parsed


ByteSize = Annotated[int, Field(ge=0), BeforeValidator(_within_pydantic(parse_bytes))]
Bandwidth = Annotated[float, Field(ge=1), BeforeValidator(_within_pydantic(parse_bandwidth))]
Flops = Annotated[float, Field(ge=1)]
"""Operations per second. Like a bandwidth it divides: what takes longer than numbers can say is refused here."""
