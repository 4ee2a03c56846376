"""Rows that a formula does not tell apart are priced once: the prices are the same, bit by bit."""

from dataclasses import fields, replace

import numpy as np
import pytest

from benchmarks.pricing import candidates, job
from cost_models import alike, catalog
from cost_models.alike import folded, spread, told_apart
from cost_models.specs.training import TrainingSpec
from cost_models.strategy import Strategy
from cost_models.table import Table, price


def _equal(one: Table, other: Table) -> None:
    for a, b in ((one.time, other.time), (one.memory, other.memory)):
        for field in fields(a):
            ours, theirs = getattr(a, field.name), getattr(b, field.name)
            assert np.array_equal(ours, theirs, equal_nan=True), field.name


def _varied(rows: Strategy) -> Strategy:
    """The rows with more of what most formulas do not read, so that many are alike."""
    draw = np.random.default_rng(1)
    again = rows.take(np.repeat(np.arange(len(rows)), 4))
    return replace(
        again,
        gradient_accumulation_steps=draw.integers(1, 9, len(again)),
        recompute_interval=draw.integers(1, 5, len(again)),
        optimizer_offload=draw.integers(0, 2, len(again)),
        virtual_pipeline_stages=draw.integers(1, 4, len(again)),
        data_parallel=2 ** draw.integers(0, 6, len(again)),
        zero_stage=draw.integers(0, 4, len(again)),
        pipeline_parallel=2 ** draw.integers(0, 3, len(again)),
        activation_offload=draw.integers(0, 2, len(again)),
        cross_entropy=draw.integers(0, 3, len(again)),
    )


@pytest.mark.parametrize("method", ["full", "lora"])
@pytest.mark.parametrize("model", ["llama-2-7b", "deepseek-v3", "gemma-2-9b"])
def test_prices_do_not_depend_on_what_is_priced_together(
    model: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = {"sequence_length": 4096, "global_batch_size": 512, "method": method}
    asked = replace(
        job(model), training=TrainingSpec.read(training | ({"lora": {"rank": 8}} if method == "lora" else {}))
    )
    rows, calibration = _varied(candidates(200)), catalog.calibration()
    monkeypatch.setattr(alike, "FEW", len(rows))
    every = price(asked, rows, calibration)
    monkeypatch.setattr(alike, "FEW", 0)
    _equal(price(asked, rows, calibration), every)


def test_one_number_for_a_column_changes_no_price() -> None:
    asked, calibration = job("mixtral-8x7b"), catalog.calibration()
    rows = candidates(40)
    same = replace(rows, **{f.name: np.full(40, getattr(rows, f.name)[3]) for f in fields(rows)[::2]})
    assert isinstance(folded(same).backend, int)
    for i in (0, 17):
        _equal(price(asked, same.take([i]), calibration), price(asked, same, calibration).take([i]))


def test_rows_told_apart_are_all_rows() -> None:
    rows = candidates(300)
    many = rows.take(np.arange(900) % 300)
    few, which = told_apart(many)
    assert len(few) == 300
    back = few.take(which)
    for field in fields(rows):
        assert np.array_equal(np.broadcast_to(getattr(back, field.name), 900), getattr(many, field.name))


def test_keys_of_wide_columns_do_not_overflow() -> None:
    rows = replace(candidates(50), **{name: np.arange(50) * 2**40 for name in ("data_parallel", "micro_batch_size")})
    few, _ = told_apart(rows.take(np.arange(100) % 50))
    assert len(few) == 50


def test_what_is_no_column_is_not_spread() -> None:
    which = np.array([0, 1, 0])
    assert spread((1.5, np.array([1.0, 2.0])), which, 2)[0] == 1.5
    variants = spread(np.array([[1.0], [2.0]]), which, 2)
    assert variants.shape == (2, 1)
    assert spread(np.array([[1.0, 3.0], [2.0, 4.0]]), which, 2).tolist() == [[1.0, 3.0, 1.0], [2.0, 4.0, 2.0]]
