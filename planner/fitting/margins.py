"""What the chance constraint multiplies allocated bytes with, from measured peaks: quantiles by regime.

A regime's rows may state allocated and reserved bytes; then the ledger's error and the allocator's fragmentation are
told apart. Where they state only what the device held, both are one ratio: it counts as fragmentation, and the ledger's
own error is 1. Rows that state only what was reserved tell nothing of what decides whether a run fits: of a device with
room the allocator keeps segments that it would give back before it fails. No constant of the ledger is fitted, so that
its errors are those of rows not in a fit; rows that a judge holds out are left out here too.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import exp, log
from statistics import NormalDist
from typing import Final

import numpy as np

from cost_models.calibration import Calibration, Factor
from cost_models.memory import error_regime, regime_of
from planner.datasets.jobs import Case, case_of
from planner.fitting.evidence import held_out
from planner.measurement import Measurement
from planner.uncertainty import SMALL_WIDTH
from planner.validate.comparison import Comparison, kind_of, shipped_pricing
from planner.validate.peaks import predicted_peak

FEWEST: Final = 8
"""Rows from which a regime has factors of its own; others keep what is cited for them."""
RISK: Final = 0.01


@dataclass(slots=True)
class _Errors:
    """Logs of measured ratios of one regime."""

    allocated: list[float] = field(default_factory=list)
    """Measured over predicted."""
    apart: list[float] = field(default_factory=list)
    """Reserved over allocated, both measured."""
    together: list[float] = field(default_factory=list)
    """Held by the device, less context and communicators, over predicted allocated."""


def margin_factors(found: Iterable[Comparison], calibration: Calibration) -> dict[str, Factor]:
    """Factors `allocated_q99`, `fragmentation` and `fragmentation_q99` by regime, for `memory.allocator`."""
    pricing = shipped_pricing(calibration)
    regimes: dict[str, _Errors] = defaultdict(_Errors)
    for row, peaks in _by_row(found):
        case = case_of(row)
        if _no_judge(case, peaks):
            continue
        ledger = pricing.memory(case)
        allocated = predicted_peak(row, ledger, "allocated", whole_load=case.job.training.load == "whole_on_device")
        over = ledger.context_bytes + ledger.communicator_bytes
        own = {kind: float(c.measured or 0.0) - (over if kind == "device" else 0.0) for kind, c in peaks.items()}
        regime = regime_of(case.job, case.configuration, calibration)
        if "allocated" in own:
            regimes[error_regime(regime)].allocated.append(log(own["allocated"] / allocated))
            if "reserved" in own:
                regimes[regime].apart.append(log(own["reserved"] / own["allocated"]))
        elif "device" in own:
            regimes[regime].together.append(log(max(own["device"], 1.0) / allocated))
    factors: dict[str, Factor] = {}
    for name, errors in sorted(regimes.items()):
        factors |= _factors(name, errors)
    return factors


def _by_row(found: Iterable[Comparison]) -> list[tuple[Measurement, dict[str, Comparison]]]:
    rows: dict[tuple[str, int], tuple[Measurement, dict[str, Comparison]]] = {}
    for comparison in found:
        if not held_out(comparison.row):
            _, peaks = rows.setdefault((comparison.row.file, comparison.row.line), (comparison.row, {}))
            peaks.setdefault(str(kind_of(comparison)), comparison)
    return list(rows.values())


def _no_judge(case: Case, peaks: dict[str, Comparison]) -> bool:
    """Rows that leave a kernel open, Megatron's models of toy width, of which workspaces are the larger part, and runs
    whose activations are under way to the host, of which the streams decide how many are still on the device.
    """
    toy = case.job.model.hidden_size < SMALL_WIDTH and case.configuration.backend.name.startswith("megatron")
    under_way = case.configuration.activation_offload
    return toy or under_way or any(comparison.scenarios for comparison in peaks.values())


def _factors(name: str, errors: _Errors) -> dict[str, Factor]:
    found: dict[str, Factor] = {}
    if len(errors.allocated) >= FEWEST:
        text = f"99th percentile of measured over predicted allocated bytes, {len(errors.allocated)} rows"
        found[f"allocated_q99.{name}"] = _factor(_upper(errors.allocated), text)
    ratios, text = errors.apart, "reserved over allocated bytes"
    if len(ratios) < FEWEST <= len(errors.together):
        ratios, text = errors.together, "bytes on the device over predicted allocated ones, the ledger's error included"
        found.setdefault(f"allocated_q99.{name}", _factor(0.0, f"inside fragmentation_q99.{name}"))
    if len(ratios) >= FEWEST:
        median = _quantile(ratios, 0.5)
        found[f"fragmentation.{name}"] = _factor(median, f"median of {text}, {len(ratios)} rows")
        upper = max(_quantile(ratios, 1 - RISK), median)
        found[f"fragmentation_q99.{name}"] = _factor(upper, f"99th percentile of {text}, {len(ratios)} rows")
    return found


def _upper(values: list[float]) -> float:
    """The percentile, or a normal one about the ledger where few tight rows hold none so far out."""
    spread = float(np.sqrt(np.mean(np.square(values))))
    return max(_quantile(values, 1 - RISK), NormalDist().inv_cdf(1 - RISK) * spread)


def _quantile(values: list[float], share: float) -> float:
    return float(np.quantile(np.array(values), share))


def _factor(logarithm: float, source: str) -> Factor:
    return Factor(value=float(f"{exp(logarithm):.4g}"), source=source)
