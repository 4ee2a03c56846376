"""Validate a folder of measurements with one calibration."""

import hashlib
from collections.abc import Callable
from importlib.resources import as_file, files
from pathlib import Path

from cost_models import catalog
from cost_models.calibration import Calibration
from planner.datasets.header import read_directory
from planner.validate.comparison import Comparison, Pricing, compare, shipped_pricing
from planner.validate.report import ValidationReport


def validate(
    directory: Path | None = None,
    calibration: Calibration | None = None,
    *,
    pricing: Pricing | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ValidationReport:
    """Compare every row of `directory` (default: the shipped measurements) with its prediction.

    `progress` is called with rows done and rows in all.

    Raises:
        DatasetUnreadable: the folder or one of its files cannot be read.
    """
    if directory is None:
        with as_file(files("calibration_data") / "measurements") as shipped:
            return validate(Path(shipped), calibration, pricing=pricing, progress=progress)
    used = catalog.calibration() if calibration is None else calibration
    dataset = read_directory(Path(directory))
    priced = shipped_pricing(used) if pricing is None else pricing
    comparisons: list[Comparison] = []
    for done, row in enumerate(dataset.measurements, start=1):
        comparisons += compare(row, used, priced)
        if progress is not None:
            progress(done, len(dataset.measurements))
    return ValidationReport(
        comparisons=tuple(comparisons),
        calibration=used.version,
        problems=dataset.problems,
        ignored_files=dataset.ignored,
        fitted_files=_fitted(Path(directory), used),
    )


def _fitted(where: Path, calibration: Calibration) -> tuple[str, ...]:
    """The files, byte for byte, on rows of which the calibration was fitted."""
    files = [where] if where.is_file() else [where / name for name in sorted(calibration.data)]
    known = (file for file in files if file.name in calibration.data and file.is_file())
    return tuple(
        file.name for file in known if hashlib.sha256(file.read_bytes()).hexdigest() == calibration.data[file.name]
    )
