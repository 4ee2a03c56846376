"""The shipped constants of time: all used, all with a source, and enough for every device and back end."""

from pathlib import Path

import numpy as np
import pytest

import cost_models.time
from cost_models import catalog
from cost_models.calibration import Calibration
from cost_models.catalog import calibration, read_yaml
from cost_models.specs.choices import ATTENTIONS, BACKENDS, COMPRESSIONS, CROSS_ENTROPIES, METHODS, OPTIMIZERS
from cost_models.time import time_ledger
from tests.unit.cost_models.time.cases import configuration, job, ledger

CONSTANTS = Path(catalog.__file__).parents[1] / "calibration_data" / "calibrations" / "shipped-time.yaml"
SOURCES = "".join(path.read_text(encoding="utf-8") for path in Path(cost_models.time.__file__).parent.glob("*.py"))


@pytest.fixture(scope="module")
def constants() -> Calibration:
    """The file alone."""
    return Calibration.read(read_yaml(CONSTANTS))


def test_every_constant_is_used(constants: Calibration) -> None:
    """A name in the file occurs in a formula."""
    names = {key.split(".")[0] for key in constants.factors}
    built = {f"quantized_{what}_slowdown" for what in ("attention", "elementwise")}
    assert not {name for name in names - built if f'"{name}"' not in SOURCES}


def test_every_constant_has_a_source_and_a_positive_value(constants: Calibration) -> None:
    """Nothing is stated without saying where it is from."""
    for key, factor in constants.factors.items():
        assert len(factor.source) > 15, key
        assert factor.value > 0, key


@pytest.mark.parametrize("device", [device.name for device in catalog.devices()])
def test_every_device_is_priced(device: str) -> None:
    """Each shipped device under each back end in 16 bits and fp32."""
    for backend in BACKENDS:
        for precision in ("bf16", "fp16", "fp32"):
            of = job(device)
            found = ledger(of, backend=backend, precision=precision, data_parallel=8, zero_stage=2, attention="sdpa")
            assert np.isfinite(found.step_seconds)
            assert found.step_seconds > 0


def test_every_choice_is_priced() -> None:
    """Each member of each closed list has its constants."""
    for attention in ATTENTIONS:
        assert ledger(job(), attention=attention).step_seconds > 0
    for loss in CROSS_ENTROPIES:
        assert ledger(job(), cross_entropy=loss).step_seconds > 0
    for compression in COMPRESSIONS:
        assert ledger(job(), data_parallel=8, gradient_compression=compression).step_seconds > 0
    for optimizer in OPTIMIZERS:
        assert ledger(job(optimizer=optimizer), optimizer=optimizer).step_seconds > 0
    for method in METHODS:
        for backend in BACKENDS:
            assert ledger(job(method=method), backend=backend).step_seconds > 0


def test_a_constant_of_the_family_beats_the_class_and_the_vendor() -> None:
    """Narrowest first."""
    of = job("b300")
    plain = calibration()
    changed = plain.scaled({"gemm_efficiency.b300.bf16": 0.3}, "x")
    others = plain.scaled({"gemm_efficiency.b200.bf16": 0.3, "gemm_efficiency.nvidia.bf16": 0.3}, "x")
    base = time_ledger(of, configuration(), plain).step_seconds
    assert time_ledger(of, configuration(), changed).step_seconds > base
    assert time_ledger(of, configuration(), others).step_seconds == base
