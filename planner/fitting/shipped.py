"""The shipped calibration as files: values written back into their lines, residuals written whole."""

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from cost_models.calibration import Calibration, Factor
from planner.errors import PlannerError
from planner.fitting.evidence import Sample, excluded

_LINE: Final = re.compile(r"^(  [\w.\-]+: \{value: )([^,}]+)(.*)$")
RESIDUALS: Final = "shipped-residuals.yaml"


def write_values(file: Path, calibration: Calibration) -> int:
    """Put the calibration's values of refitted factors into their lines, comments and sources kept; lines changed.

    Raises:
        PlannerError: a refitted factor of the file is not on a line of its own.
    """
    lines, changed, seen = file.read_text(encoding="utf-8").splitlines(keepends=True), 0, set()
    for index, line in enumerate(lines):
        match = _LINE.match(line)
        name = line.strip().partition(":")[0]
        factor = calibration.factors.get(name)
        if match is None or factor is None or factor.prior is None:
            continue
        seen.add(name)
        if float(match.group(2)) != factor.value:
            lines[index] = f"{match.group(1)}{plain(factor.value)}{match.group(3)}\n"
            changed += 1
    text = "".join(lines)
    missed = [k for k, f in calibration.factors.items() if f.prior is not None and k not in seen and f"  {k}:" in text]
    if missed:
        raise PlannerError(f"{file.name}: {missed[0]} is not written as one line `  name: {{value: ...}}`")
    file.write_text(text, encoding="utf-8")
    return changed


def plain(value: float) -> str:
    """A number without exponent where that is short."""
    text = f"{value:.3g}"
    return text if "e" not in text else f"{value:.9f}".rstrip("0") if value > 1e-7 else f"{value:.3e}"


def counted_runs(found: Sequence[Sample]) -> dict[str, Factor]:
    """Published runs with a usable speed, by framework and device family."""
    counts = Counter(sample.stack for sample in found if excluded(sample) == "")
    source = "counted over calibration_data/measurements"
    return {
        f"measured_runs.{backend}.{family}": Factor(value=count, unit="runs", source=source)
        for (backend, family), count in sorted(counts.items())
    }


def data_hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of every measurement file."""
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.glob("*.csv"))}


def write_residuals(file: Path, version: str, factors: Mapping[str, Factor], hashes: Mapping[str, str]) -> None:
    """Write the file of residuals whole."""
    lines = [
        "# How far predictions may be off, and from what. Written by `meshwright calibrate --write`; do not edit.",
        "# The interval of a step predicted at t seconds is [t x step_time_low, t x step_time_high].",
        f'version: "{version}"',
        "data:  # SHA-256 of the measurements behind these figures",
        *(f"  {name}: {value}" for name, value in hashes.items()),
        "factors:",
    ]
    for name, factor in factors.items():
        unit = "" if factor.unit == "1" else f", unit: {factor.unit}"
        lines.append(f'  {name}: {{value: {factor.value:.6g}{unit}, source: "{factor.source}"}}')
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
