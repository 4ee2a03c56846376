"""The whole of `meshwright calibrate`: refit, measure the residuals, write both, or check what is shipped."""

from collections.abc import Callable
from dataclasses import dataclass
from math import expm1
from pathlib import Path

from cost_models import catalog
from cost_models.calibration import Calibration, Factor
from planner.datasets.header import read_directory
from planner.errors import PlannerError
from planner.fitting.evidence import Sample, samples
from planner.fitting.fit import FEWEST_ROWS, Fitted, fitted
from planner.fitting.margins import margin_factors
from planner.fitting.memory import memory_factors, peaks
from planner.fitting.ranking import ranking_noise
from planner.fitting.residuals import cross_validated, judged_rows, model_fold, quantile_factors
from planner.fitting.shipped import RESIDUALS, counted_runs, data_hashes, write_residuals, write_values


@dataclass(frozen=True)
class Recalibrated:
    """A refit of the shipped constants with its residuals."""

    result: Fitted
    found: tuple[Sample, ...]
    residuals: dict[str, Factor]
    hashes: dict[str, str]

    @property
    def calibration(self) -> Calibration:
        """The refitted constants and the new residuals as one value."""
        old = self.result.calibration
        return Calibration(version=old.version, factors={**old.factors, **self.residuals}, data=self.hashes)


def folder() -> Path:
    """Where the shipped data lie as files.

    Raises:
        PlannerError: they are not files on disk.
    """
    found = Path(catalog.__file__).parents[1] / "calibration_data"
    if not (found / "measurements").is_dir():
        raise PlannerError(f"{found}: the shipped measurements are not here as files")
    return found


def recalibrate(
    prior: Calibration, data: Path | None = None, *, report: Callable[[str], None] | None = None
) -> Recalibrated:
    """Refit `prior` from a folder of measurements, the shipped ones by default."""
    tell = report or (lambda _: None)
    where = folder() / "measurements" if data is None else data
    tell("reading")
    rows = read_directory(where).measurements
    found = tuple(samples(rows))
    tell("fitting")
    result = fitted(found, prior)
    tell("leaving models and stacks out")
    spread = residual_factors(result, found)
    tell("comparing peaks of memory")
    found_peaks = peaks(rows, prior)
    spread |= memory_factors(found_peaks) | margin_factors(found_peaks, prior)
    return Recalibrated(result, found, spread, data_hashes(where))


def residual_factors(result: Fitted, found: tuple[Sample, ...]) -> dict[str, Factor]:
    """Everything that `planner.uncertainty` reads."""
    judged = judged_rows(found)
    models = cross_validated(result, judged, model_fold)
    noise, pairs = ranking_noise(models)
    rule = f"predicted gap that the errors of two configurations of one job undo in the median of {pairs} pairs"
    fewest = "fewest runs from which re-estimated factors predicted better than the shipped ones"
    return {
        "known_stack_runs": Factor(value=FEWEST_ROWS, unit="runs", source=fewest),
        "ranking_noise": Factor(value=float(f"{expm1(noise):.2g}"), source=rule),
        "step_time_widening": Factor(value=1.0, source="a site's few runs replace it for their device"),
        **quantile_factors(result, judged),
        **counted_runs(found),
    }


def write(new: Recalibrated) -> int:
    """Put the new values and residuals into the shipped files; values changed."""
    where = folder() / "calibrations"
    version = new.result.calibration.version.rpartition("+")[2]
    changed = write_values(where / "shipped-time.yaml", new.result.calibration)
    write_residuals(where / RESIDUALS, version, new.residuals, new.hashes)
    catalog.calibration.cache_clear()
    return changed


def differences(new: Recalibrated, shipped: Calibration) -> list[str]:
    """Factors whose shipped value is not what a refit gives, in words."""
    old = shipped.factors
    return [
        f"{name}: shipped {old[name].value if name in old else 'none'}, refitted {factor.value}"
        for name, factor in new.calibration.factors.items()
        if name not in old or old[name].value != factor.value
    ]
