"""The shipped calibration: current, reproducible, and every refitted constant explained."""

import re
from pathlib import Path

import pytest

from cost_models.calibration import Calibration, Factor
from cost_models.catalog import calibration
from planner.errors import PlannerError
from planner.fitting.shipped import RESIDUALS, data_hashes, plain, write_residuals, write_values
from planner.fitting.shipping import folder


def test_the_residuals_stand_for_the_shipped_measurements() -> None:
    """Measurements that changed without `meshwright calibrate --write` are found here."""
    assert dict(calibration().data) == data_hashes(folder() / "measurements")


def test_every_refitted_constant_has_a_prior_with_a_width() -> None:
    for name, factor in calibration().factors.items():
        if factor.prior is not None:
            assert factor.sigma is not None, name
            assert abs(factor.value / factor.prior - 1) < 2.0, name


def test_values_go_back_into_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "shipped-x.yaml"
    file.write_text(
        '# Head.\nversion: "1"\nfactors:\n'
        '  a: {value: 0.5, prior: 0.4, source: "x"}  # why\n  b: {value: 2, source: "y"}\n'
    )
    factors = {"a": Factor(value=0.625, prior=0.4, source="x"), "b": Factor(value=3, source="y")}
    assert write_values(file, Calibration(version="1", factors=factors)) == 1
    text = file.read_text()
    assert '  a: {value: 0.625, prior: 0.4, source: "x"}  # why\n' in text
    assert "b: {value: 2," in text


def test_a_constant_on_no_line_of_its_own_is_said(tmp_path: Path) -> None:
    file = tmp_path / "shipped-x.yaml"
    file.write_text("factors:\n  a:\n    value: 0.5\n    prior: 0.4\n    source: x\n")
    with pytest.raises(PlannerError, match="a is not written as one line"):
        write_values(file, Calibration(version="1", factors={"a": Factor(value=1, prior=0.4, source="x")}))


def test_residuals_read_back(tmp_path: Path) -> None:
    import yaml

    factors = {
        "step_time_low.known_stack.80": Factor(value=0.9, source="here"),
        "runs": Factor(value=3, unit="runs", source="n"),
    }
    write_residuals(tmp_path / RESIDUALS, "7", factors, {"x.csv": "ab"})
    read = Calibration.read(yaml.safe_load((tmp_path / RESIDUALS).read_text()))
    assert dict(read.factors) == factors
    assert read.data == {"x.csv": "ab"}


@pytest.mark.parametrize("value", [0.829, 1.74e-05, 12.7, 0.00102, 604.0, 1.2e-10, 7.0])
def test_numbers_are_written_as_they_are(value: float) -> None:
    assert float(plain(value)) == pytest.approx(value, rel=1e-12)


def test_intervals_are_ordered_and_wider_where_less_is_known() -> None:
    constants = calibration()
    for key in constants.factors:
        match = re.fullmatch(r"step_time_low\.(.+)\.80", key)
        if match:
            name = match.group(1)
            low90, low80, high80, high90 = (
                constants(f"step_time_{side}", f"{name}.{level}")
                for side, level in (("low", 90), ("low", 80), ("high", 80), ("high", 90))
            )
            assert low90 <= low80 <= 1 <= high80 <= high90, name
            assert low80 < high80, name
    width = {
        name: constants("step_time_high", f"{name}.80") / constants("step_time_low", f"{name}.80")
        for name in ("known_stack", "new_device", "unseen")
    }
    assert width["known_stack"] <= width["new_device"] <= width["unseen"]


def test_every_refitted_constant_has_a_physical_reading() -> None:
    import yaml

    readings = yaml.safe_load((folder() / "calibrations" / "parameters.yaml").read_text(encoding="utf-8"))
    refitted = {name.partition(".")[0] for name, factor in calibration().factors.items() if factor.prior is not None}
    assert refitted <= set(readings)
    assert all(isinstance(text, str) and text for text in readings.values())
