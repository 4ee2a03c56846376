"""Which constants a calibration may state: none that no machine has, whoever wrote it."""

from collections.abc import Mapping
from math import exp
from typing import Any

from cost_models.calibration import Calibration, Factor
from cost_models.errors import BrokenRule, SpecError, all_of


def check(calibration: Calibration, shipped: Calibration, ranges: Mapping[str, Any]) -> None:
    """Hold every factor against the shipped one, or those of its kind (`calibration_data/calibrations/ranges.yaml`).

    A name of which no kind is known is read by no formula, and is let be.

    Raises:
        SpecError: factors that lie outside; each is named with its range and has its place.
    """
    kinds: dict[str, list[Factor]] = {}
    for name, factor in shipped.factors.items():
        kinds.setdefault(_kind(name), []).append(factor)
    wrong: list[SpecError] = []
    for name, factor in calibration.factors.items():
        own = shipped.factors.get(name.partition("@")[0])
        alike = [own] if own is not None else kinds.get(ranges["kin"].get(_kind(name), _kind(name)), [])
        if not alike:
            continue
        low, high = _range(_kind(name), alike, ranges)
        for key, value, least, most in (
            ("value", factor.value, low, high),
            ("prior", factor.prior, low, high),
            ("sigma", factor.sigma, 0.0, float(ranges["most_sigma"])),
        ):
            if value is not None and not least <= value <= most:
                text = f"factors.{name}.{key} is {value:g}, outside of {least:.4g} to {most:.4g}"
                wrong.append(BrokenRule(text).at("factors", name, key))
    if wrong:
        raise all_of(wrong)


def _kind(name: str) -> str:
    """The first part of a dotted name."""
    return name.partition("@")[0].partition(".")[0]


def _range(kind: str, alike: list[Factor], ranges: Mapping[str, Any]) -> tuple[float, float]:
    r"""The bounds of a kind of factor around its shipped values v, with their widths :math:`\sigma`.

    .. math:: [\min v / f,\ \max v \cdot f], \quad f = \max(f_{kind},\ e^{4 \sigma})
    """
    sigma = max(factor.sigma or 0.0 for factor in alike)
    factor = max(float(ranges["factors"].get(kind, ranges["factor"])), exp(ranges["sigmas"] * sigma))
    low, high = min(one.value for one in alike) / factor, max(one.value for one in alike) * factor
    return low, min(high, ranges["most_share"]) if kind.endswith(tuple(ranges["shares"])) else high
