"""How figures are written: GiB for memory, always; seconds with what matters of them."""

from cost_models import units
from cost_models.units import GIB


def gib(size: float) -> str:
    """A size in GiB without the unit, for table cells."""
    return f"{size / GIB:.2f}"


def seconds(value: float) -> str:
    """A duration: `12.34 s`, `0.123 s`, `45.6 ms`."""
    if value >= 10:
        return f"{value:.2f} s"
    return f"{value:.3f} s" if value >= 0.1 or value == 0 else f"{value * 1e3:.3g} ms"


def percent(share: float, digits: int = 1) -> str:
    """A share as a percentage."""
    return f"{share * 100:.{digits}f} %"


def words(name: str) -> str:
    """A key as words."""
    return name.replace("_", " ")


def amount(value: float, unit: str) -> str:
    """An objective's value with its unit; bytes as GiB."""
    return units.gib(value) if unit == "bytes" else f"{value:.6g} {unit}".rstrip()


def count(number: int) -> str:
    """A count of parameters to three figures: `13.3B`, `124M`, `1.04T`."""
    for size, letter in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k")):
        # 999.5 million is 1 billion to three figures.
        if number >= size * 0.9995:
            value = number / size
            digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
            return f"{value:.{digits}f}{letter}"
    return str(number)
