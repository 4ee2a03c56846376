"""Margins of the chance constraint come from measured peaks, and are those that are shipped."""

from functools import cache
from pathlib import Path

from cost_models import catalog
from cost_models.calibration import Factor
from planner.datasets.header import read_directory
from planner.fitting.margins import FEWEST, _Errors, _factors, margin_factors
from planner.fitting.memory import peaks

MEASURED = Path(catalog.__file__).parents[1] / "calibration_data" / "measurements"


@cache
def found() -> dict[str, Factor]:
    rows = [row for row in read_directory(MEASURED).measurements if row.source in {"fitcheck", "bigscience"}]
    return margin_factors(peaks(rows, catalog.calibration()), catalog.calibration())


def test_shipped_margins_are_what_a_refit_gives() -> None:
    shipped = catalog.calibration().factors
    names = [name for name in found() if "eager_materialised" in name or "megatron_deepspeed" in name]
    assert len(names) >= 5
    assert all(shipped[name].value == found()[name].value for name in names)


def test_quantiles_lie_above_medians() -> None:
    for name, factor in found().items():
        if name.startswith("fragmentation_q99."):
            assert factor.value >= found()["fragmentation." + name.partition(".")[2]].value >= 1.0


def test_few_rows_give_no_margin_and_tight_ones_no_certainty() -> None:
    assert _factors("x", _Errors(allocated=[0.01] * (FEWEST - 1))) == {}
    assert _factors("x", _Errors(allocated=[-0.01] * FEWEST))["allocated_q99.x"].value > 1.02


def test_errors_of_what_a_device_holds_are_not_counted_twice() -> None:
    factors = _factors("x", _Errors(together=[0.1 * i for i in range(FEWEST)]))
    assert factors["allocated_q99.x"].value == 1.0
    assert factors["fragmentation_q99.x"].value > factors["fragmentation.x"].value
