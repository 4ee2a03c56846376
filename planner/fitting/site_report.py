"""What a site's files gave: rows used, why others were not, and what moved."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cost_models import catalog
from cost_models.calibration import Calibration, Factor
from cost_models.errors import MissingCalibration
from cost_models.time import time_ledger
from planner.datasets.header import read_directory
from planner.fitting.evidence import Sample, sorted_out
from planner.fitting.site import Told, updated
from planner.fitting.unlearned import unlearned


@dataclass(frozen=True)
class FileUse:
    """One file of a site."""

    file: str
    used: int
    unused: Mapping[str, int]
    """Rows that were not used, by why."""


@dataclass(frozen=True)
class SiteReport:
    """An update of the shipped calibration, with what stands behind it."""

    calibration: Calibration
    changed: Mapping[str, Factor]
    files: tuple[FileUse, ...]
    told: tuple[Told, ...]
    problems: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "version": self.calibration.version,
            "changed": {key: factor.model_dump(mode="json") for key, factor in self.changed.items()},
            "files": [{"file": f.file, "used": f.used, "unused": dict(f.unused)} for f in self.files],
            "devices": [
                {
                    "family": t.family, "rows": t.rows, "moved": sorted(t.moved), "why": t.why,
                    "out_of_range": list(t.out_of_range),
                }
                for t in self.told
            ],
            "nothing_moved": self.nothing_moved,
            "problems": list(self.problems),
        }  # fmt: skip

    @property
    def nothing_moved(self) -> bool:
        """Whether every constant is the shipped one."""
        return not any(told.moved for told in self.told)

    def lines(self) -> list[str]:
        """The report in words."""
        found = []
        for file in self.files:
            rest = "; ".join(f"{count} not: {why}" for why, count in file.unused.items())
            rows = file.used + sum(file.unused.values())
            found.append(f"{file.file}: {file.used} of {rows} rows used" + (f"; {rest}" if rest else ""))
        found += self.problems
        for told in self.told:
            said = f"{len(told.moved)} factors moved" if told.moved else f"nothing moved: {told.why}"
            found.append(f"{told.family}: {told.rows} rows, {said}")
            for name in told.out_of_range:
                found.append(f"{told.family}: {name} goes as far as its prior allows; the rows would move it further")
        if self.nothing_moved:
            found.append("nothing moved: every constant is the shipped one")
        return found


def site_report(folder: Path) -> SiteReport:
    """Update the shipped calibration from a folder of a site's measurements, or from one file.

    Raises:
        DatasetUnreadable: the folder or its files cannot be read.
    """
    shipped, dataset = catalog.calibration(), read_directory(folder)
    found, unused = sorted_out(dataset.measurements)
    judged = [(sample, _impossible(sample, shipped)) for sample in found]
    unused += [(sample.row, reason) for sample, reason in judged if reason]
    found = [sample for sample, reason in judged if not reason]
    update = updated(shipped, found)
    why: dict[str, Counter[str]] = {file: Counter() for file in dataset.files}
    for row, reason in unused:
        why[row.file][reason] += 1
    counts = Counter(sample.row.file for sample in found)
    moving = {told.family for told in update.told if told.moved}
    behind = sorted({sample.row.file for sample in found if sample.case.job.device.family in moving})
    hashes = {
        name: hashlib.sha256((folder / name if folder.is_dir() else folder).read_bytes()).hexdigest() for name in behind
    }
    factors = {**update.calibration.factors, **unlearned(shipped, found, update.told)}
    return SiteReport(
        calibration=Calibration(
            version=update.calibration.version, factors=factors, data={**update.calibration.data, **hashes}
        ),
        changed={key: f for key, f in factors.items() if shipped.factors.get(key) != f},
        files=tuple(FileUse(file, counts[file], dict(reasons)) for file, reasons in why.items()),
        told=update.told,
        problems=(*dataset.ignored, *dataset.problems),
    )


def _impossible(sample: Sample, calibration: Calibration) -> str:
    """Why a row that states a time is still none of a run: it cannot be priced, or the model's own arithmetic in that
    time is more than the peak of its devices; "" where it may be one.
    """
    try:
        ledger = time_ledger(sample.case.job, sample.configuration, calibration)
    except MissingCalibration as error:
        return str(error)
    return "faster than the peak of its devices" if ledger.model_flops > ledger.peak_flops * sample.seconds else ""
