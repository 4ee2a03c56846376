"""The shipped measurements are read and priced, not skipped: nearly every row that says enough counts."""

from importlib.resources import files
from pathlib import Path

import pytest

from cost_models import catalog
from planner.datasets.header import Dataset, read_directory
from planner.datasets.jobs import case_of
from planner.datasets.unusable import Unusable
from planner.measurement import Measurement
from planner.validate.comparison import compare, shipped_pricing
from tests.scale import scaled

STATED = (
    "layers",
    "hidden",
    "heads",
    "seq_len",
    "gpu",
    "n_gpus",
    "tp",
    "pp",
    "cp",
    "dp",
    "micro_batch",
    "framework",
    "precision",
)
SHARE = 0.85


def says_enough(row: Measurement) -> bool:
    """Shape, device, world size, degrees and batch."""
    return all(getattr(row, key) not in {None, ""} for key in STATED)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return read_directory(Path(str(files("calibration_data") / "measurements")))


def test_every_file_is_read(dataset: Dataset) -> None:
    assert dataset.problems == ()
    assert dataset.ignored == ()
    assert len(dataset.measurements) == 1945
    assert len({row.source for row in dataset.measurements}) == 16


def test_every_row_names_its_origin(dataset: Dataset) -> None:
    assert [(row.file, row.line) for row in dataset.measurements if not row.ref] == []


def test_every_device_is_in_the_catalogue(dataset: Dataset) -> None:
    for gpu in sorted({row.gpu for row in dataset.measurements if row.gpu}):
        catalog.device(gpu)


def test_rows_that_say_enough_are_used(dataset: Dataset) -> None:
    enough = [row for row in dataset.measurements if says_enough(row)]
    skipped: dict[str, int] = {}
    for row in enough:
        try:
            case_of(row)
        except Unusable as unusable:
            skipped[str(unusable)] = skipped.get(str(unusable), 0) + 1
    assert len(enough) > 1500
    assert sum(skipped.values()) <= (1 - SHARE) * len(enough), skipped


def test_a_sample_of_every_source_is_priced(dataset: Dataset) -> None:
    calibration = catalog.calibration()
    pricing = shipped_pricing(calibration)
    failed = []
    for source in sorted({row.source for row in dataset.measurements}):
        rows = [row for row in dataset.measurements if row.source == source and says_enough(row)]
        count = scaled(8, len(rows))
        for row in rows[:: max(1, len(rows) // count)]:
            for comparison in compare(row, calibration, pricing):
                if comparison.reason.startswith(("not calibrated", "cannot be priced")):
                    failed.append((row.file, row.line, comparison.reason))
                if comparison.used and comparison.predicted is not None:
                    assert comparison.predicted > 0
    assert failed == []
