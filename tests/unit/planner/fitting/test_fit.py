"""A fit finds what made the rows, keeps its hands off what judges, and gives the same bits twice."""

import numpy as np
import pytest

from cost_models.catalog import calibration
from cost_models.time import time_ledger
from planner.fitting import fit, update
from planner.fitting.batches import Batches
from planner.fitting.evidence import excluded, fitted_on, held_out, samples, weights
from planner.fitting.residuals import quantile
from planner.fitting.robust import Problem, resolve_linear, solve
from planner.measurement import Measurement
from tests.unit.planner.fitting.rows import as_measured_by, published, some

FLASH = "flash_efficiency.a100"


@pytest.fixture(scope="module")
def foundry() -> list[Measurement]:
    """Rows that flash attention on A100 decides, as a slower A100 would have run them."""
    rows = [row for row in some("llm-foundry", 200) if row.gpu.startswith("A100") and (row.seq_len or 0) >= 16384]
    truth = calibration().scaled({FLASH: 0.8 * calibration()(FLASH)}, "truth")
    return as_measured_by(truth, rows)


def test_a_fit_moves_towards_the_constant_that_made_the_rows(foundry: list[Measurement]) -> None:
    shipped = calibration()
    start = shipped.model_copy(
        update={
            "factors": {
                k: f.model_copy(update={"prior": f.value} if f.prior else {}) for k, f in shipped.factors.items()
            }
        }
    )
    moved = fit(foundry, start)
    backward = "flash_backward_efficiency.fsdp"
    assert moved(FLASH) * moved(backward) < 0.9 * shipped(FLASH) * shipped(backward)
    used = fitted_on(samples(foundry))
    misses = [
        np.mean(np.abs(Batches(used, values).residuals(values)))
        for values in ({key: f.value for key, f in constants.factors.items()} for constants in (start, moved))
    ]
    assert misses[1] < 0.3 * misses[0]


def test_a_fit_is_the_same_twice(foundry: list[Measurement]) -> None:
    assert fit(foundry[:12], calibration()) == fit(foundry[:12], calibration())


def test_held_out_rows_move_nothing(foundry: list[Measurement]) -> None:
    judged = [
        row.model_copy(update={"step_time_s": 100 * float(row.step_time_s or 0)}) for row in foundry if held_out(row)
    ]
    others = [row for row in foundry if not held_out(row)]
    assert judged
    assert fit([*others, *judged], calibration()).factors == fit(others, calibration()).factors


def test_a_fifth_of_every_large_source_is_held_out() -> None:
    found = samples(published())
    for source in ("vtrain", "llm-foundry", "bigscience", "megatron-bridge"):
        share = np.mean([held_out(sample.row) for sample in found if sample.row.source == source])
        assert 0.1 < share < 0.3, source


def test_toy_models_and_offloaded_runs_are_not_fitted_on() -> None:
    used = fitted_on(samples(published()))
    assert all(excluded(sample) == "" for sample in used)
    assert not any(sample.group == "megatron-ci toy" for sample in used)
    assert sum(sample.group == "vtrain single-node" for sample in used) < 100


def test_no_source_outvotes_the_others_by_its_length() -> None:
    used = fitted_on(samples(published()))
    weight = weights(used)
    assert np.mean(weight) == pytest.approx(1.0)
    counts = {sample.group: sum(s.group == sample.group for s in used) for sample in used}
    totals = {g: sum(w for w, s in zip(weight, used, strict=True) if s.group == g) for g in counts}
    longest, shortest = max(counts, key=lambda g: counts[g]), min(counts, key=lambda g: counts[g])
    assert totals[longest] / totals[shortest] < counts[longest] / counts[shortest]


def test_batches_price_as_the_ledger_does() -> None:
    found = [
        sample for source in ("vtrain", "simumax", "fitcheck", "megatron-bridge") for sample in samples(some(source, 8))
    ]
    values = {key: factor.value for key, factor in calibration().factors.items()}
    residuals = Batches(found, values).residuals(values)
    for sample, residual in zip(found, residuals, strict=True):
        step = time_ledger(sample.case.job, sample.configuration, calibration()).step_seconds
        assert np.exp(residual) * sample.seconds == pytest.approx(step, rel=1e-12)


def test_slopes_are_those_of_the_residuals() -> None:
    found = samples(some("simumax", 6))
    values = {key: factor.value for key, factor in calibration().factors.items()}
    batches = Batches(found, values)
    names = ("gemm_efficiency.a100.bf16", "link_efficiency.pcie", "launch_floor_seconds.megatron")
    _, slopes = batches.linearised(values, names)
    for column, name in enumerate(names):
        up = batches.residuals(values | {name: values[name] * 1.001})
        down = batches.residuals(values | {name: values[name] / 1.001})
        assert slopes[:, column] == pytest.approx((up - down) / (2 * np.log(1.001)), abs=0.02)


def test_the_estimate_of_a_linear_problem_is_known() -> None:
    """Weak rows keep the prior, many strong ones leave it, one outlier does not pull."""
    rows = np.array([0.02] * 30 + [5.0])
    problem = Problem(lambda theta: (theta[0] - rows, np.ones((31, 1))), np.ones(31), np.zeros(1), np.array([10.0]))
    theta = solve(problem, np.zeros(1))
    assert theta[0] == pytest.approx(0.02, abs=0.02)
    residuals, slopes = problem.linearised(np.zeros(1))
    assert resolve_linear(residuals, slopes, problem, np.zeros(1), np.arange(31)) == pytest.approx(theta, abs=1e-3)
    assert resolve_linear(residuals, slopes, problem, np.zeros(1), np.arange(0)) == pytest.approx([0.0])


def test_weighted_quantiles() -> None:
    values = np.array([3.0, 1.0, 2.0])
    assert quantile(values, np.ones(3), 0.5) == pytest.approx(2.0)
    assert quantile(values, np.array([1.0, 0.0, 0.0]), 0.5) == pytest.approx(3.0)


def test_rows_of_one_device_move_no_other_devices_predictions(foundry: list[Measurement]) -> None:
    shipped = calibration()
    updated = update(shipped, foundry[:12])
    moved = {key for key, factor in updated.factors.items() if shipped.factors.get(key) != factor}
    assert any(key.endswith("@a100") for key in moved)
    assert all(key.endswith("@a100") or key.startswith("measured_runs.") for key in moved)
    elsewhere = samples(row for row in some("torchtitan", 20) if row.gpu.startswith("H100"))
    assert elsewhere
    for sample in elsewhere:
        before = time_ledger(sample.case.job, sample.configuration, shipped).step_seconds
        assert time_ledger(sample.case.job, sample.configuration, updated).step_seconds == before


def test_an_update_predicts_the_site_better(foundry: list[Measurement]) -> None:
    shipped, rows = calibration(), foundry
    updated = update(shipped, rows[::2])
    rest = samples(rows[1::2])

    def miss(constants: object) -> float:
        return float(np.mean([
            abs(time_ledger(s.case.job, s.configuration, constants).step_seconds / s.seconds - 1)  # type: ignore[arg-type]
            for s in rest
        ]))  # fmt: skip

    assert miss(updated) < 0.6 * miss(shipped)


def test_too_few_rows_widen_instead(foundry: list[Measurement]) -> None:
    shipped = calibration()
    updated = update(shipped, foundry[:3])
    moved = {key: factor for key, factor in updated.factors.items() if shipped.factors.get(key) != factor}
    assert {key for key in moved if not key.startswith("measured_runs.")} == {"step_time_widening@a100"}
    assert moved["step_time_widening@a100"].value > 1.0
    sample = samples(foundry[:1])[0]
    before = time_ledger(sample.case.job, sample.configuration, shipped).step_seconds
    assert time_ledger(sample.case.job, sample.configuration, updated).step_seconds == before
