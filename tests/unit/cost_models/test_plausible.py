"""A calibration from outside states nothing that no machine has; what is shipped, and what sites fit, passes."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from cost_models import catalog
from cost_models.calibration import Calibration, Factor
from cost_models.errors import SpecError
from planner import calibrations
from planner.fitting.site import MOST_WIDTHS


def changed(**stated: dict[str, Any]) -> Calibration:
    shipped = catalog.calibration()
    factors = {name: Factor(source="here", **own) for name, own in stated.items()}
    return Calibration(version="x", factors={**shipped.factors, **factors})


def test_the_shipped_one_passes() -> None:
    catalog.check_calibration(catalog.calibration())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gemm_efficiency.a100.bf16", -1.0),
        ("gemm_efficiency.a100.bf16", 0.0),
        ("gemm_efficiency.a100.bf16", 1e300),
        ("gemm_efficiency.a100.bf16", 1.6),
        ("gemm_efficiency.a100.bf16@a100", 2.0),
        ("gemm_efficiency.mine.bf16", 2.0),
        ("sharded_exposed.fsdp", 3.0),
        ("context.a100", -1.0),
        ("context.a100", 1e15),
        ("step_time_low.known_stack.80", 0.0),
        ("fragmentation.eager", 1e6),
        ("drift.step_seconds.fsdp@a100", 3.0),
    ],
)
def test_what_no_machine_has_is_refused_with_both_sides(name: str, value: float) -> None:
    if name.startswith("drift"):  # read by no formula: a note
        catalog.check_calibration(changed(**{name: {"value": value}}))
        return
    with pytest.raises(SpecError, match=rf"{name}.value is .*, outside of .* to ") as refused:
        catalog.check_calibration(changed(**{name: {"value": value}}))
    assert [keys for keys, _ in refused.value.places] == [("factors", name, "value")]


def test_every_wrong_one_is_named() -> None:
    wrong = changed(
        **{
            "gemm_efficiency.a100.bf16": {"value": -1.0, "sigma": 1e300, "prior": -3.0},
            "memory_efficiency.any": {"value": 9.0},
        }
    )
    with pytest.raises(SpecError) as refused:
        catalog.check_calibration(wrong)
    assert len(refused.value.places) == 4


def test_as_far_as_a_site_may_move_a_constant_it_may_be() -> None:
    from math import exp

    shipped = catalog.calibration()
    for name, factor in shipped.factors.items():
        if factor.prior is None or factor.sigma is None:
            continue
        for side in (-1, 1):
            value = factor.prior * exp(side * MOST_WIDTHS * factor.sigma)
            share = name.partition(".")[0].endswith(("_efficiency", "_share", "_exposed"))
            catalog.check_calibration(changed(**{f"{name}@mine": {"value": min(value, 1.5) if share else value}}))


def test_a_file_is_held_against_it_too(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(changed(**{"gemm_efficiency.a100.bf16": {"value": -1.0}}).model_dump(mode="json")))
    with pytest.raises(SpecError, match=r"mine.yaml: factors.gemm_efficiency.a100.bf16.value is -1, outside of 0.082"):
        calibrations.read(file)
