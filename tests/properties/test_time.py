"""What must hold of every predicted step, whatever the model, machine and configuration."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_models import schedule
from cost_models.catalog import calibration
from cost_models.job import Job
from cost_models.ledger import TimeLedger
from cost_models.specs.choices import RECOMPUTES
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.configuration import Configuration, RecomputeCounts, Stage
from cost_models.strategy import Strategy
from cost_models.table import TimeTable
from cost_models.time import time_ledger, time_table
from cost_models.time.work import TERMS
from tests.properties.time_cases import configurations, jobs


def table_step(job: Job, configuration: Configuration, table: TimeTable) -> float:
    """The step from row 0 of a table times the layer counts, by the docstring of `TimeTable`."""
    kinds, p = list(job.model.layer_kinds), configuration.pipeline_parallel
    v = configuration.virtual_pipeline_stages
    sequence = iter(job.model.layer_sequence)
    held: list[list[Any]] = [[] for _ in range(p)]
    for chunk in range(v):
        for s, stage in enumerate(configuration.stages):
            size = stage.layers * (chunk + 1) // v - stage.layers * chunk // v
            held[s] += [next(sequence) for _ in range(size)]
    seconds, tails = [], []
    for s, stage in enumerate(configuration.stages):
        c = schedule.stage_class(s, p)
        t, g = table.stage[0, c], table.stage_tail[0, c]
        for i, kind in enumerate(held[s]):
            full, partly = stage.recompute.full, stage.recompute.full + stage.recompute.selective
            mode = "full" if i < full else "selective" if i < partly else "none"
            t += table.layer[0, kinds.index(kind), RECOMPUTES.index(mode)]
            g += table.layer_tail[0, kinds.index(kind)]
            if i < stage.optimizer_layers_offloaded:
                g += table.layer_offload[0, kinds.index(kind)]
        seconds.append(t)
        tails.append(g)
    return float(
        schedule.step_seconds(
            max(seconds), sum(seconds), max(tails), table.fixed[0],
            micro_batches=configuration.gradient_accumulation_steps, virtual=v,
        )
    )  # fmt: skip


def rows(*configs: Configuration) -> Strategy:
    """Configurations as the rows of one strategy."""
    parts = [Strategy.of(c) for c in configs]
    return Strategy(**{f.name: np.array([getattr(p, f.name) for p in parts]) for f in fields(Strategy)})


@given(st.data())
def test_ledger_is_table_times_counts(data: st.DataObject) -> None:
    """The ledger, walked by names, equals the table's coefficients times the layer counts."""
    job = data.draw(jobs())
    configuration = data.draw(configurations(job))
    ledger = time_ledger(job, configuration, calibration())
    expected = table_step(job, configuration, time_table(job, rows(configuration), calibration()))
    assert ledger.step_seconds == pytest.approx(expected, rel=1e-9)


@given(st.data())
def test_terms_sum_to_the_step(data: st.DataObject) -> None:
    """No second is lost or counted twice, and none is negative."""
    job = data.draw(jobs())
    ledger = time_ledger(job, data.draw(configurations(job)), calibration())
    assert set(ledger.exposed) == set(TERMS)
    assert sum(ledger.exposed.values()) == pytest.approx(ledger.step_seconds, rel=1e-9)
    assert all(seconds >= 0 for seconds in (*ledger.exposed.values(), *ledger.hidden.values()))
    assert np.isfinite(ledger.step_seconds)


@given(st.data())
def test_a_row_of_the_vector_is_the_scalar(data: st.DataObject) -> None:
    """Pricing many candidates at once gives the very numbers of pricing each alone."""
    job = data.draw(jobs())
    several = [data.draw(configurations(job)) for _ in range(3)]
    together = time_table(job, rows(*several), calibration())
    for i, configuration in enumerate(several):
        alone = time_table(job, rows(configuration), calibration())
        for f in fields(TimeTable):
            np.testing.assert_array_equal(getattr(together, f.name)[i], getattr(alone, f.name)[0])


def on_faster(job: Job, field: str, factor: float) -> Job:
    """The same job on a machine that is better in one respect."""
    pool = job.pool
    device = pool.device
    if field == "peak_flops":
        device = device.model_copy(update={"peak_flops": {k: v * factor for k, v in device.peak_flops.items()}})
    elif field in {"memory_bandwidth", "pcie_bandwidth"}:
        device = device.model_copy(update={field: getattr(device, field) * factor})
    else:
        link = getattr(pool, field)
        pool = pool.model_copy(update={field: link.model_copy(update={"bandwidth": link.bandwidth * factor})})
    pool = pool.model_copy(update={"device": device})
    return Job(model=job.model, cluster=ClusterSpec(pools=(pool,)), training=job.training)


@given(
    st.data(),
    st.sampled_from(["peak_flops", "memory_bandwidth", "pcie_bandwidth", "intra_node_link", "inter_node_link"]),
    st.floats(1.0, 10.0),
)
def test_a_better_machine_is_never_slower(data: st.DataObject, field: str, factor: float) -> None:
    """More arithmetic, memory, PCIe, link or network bandwidth never lengthens a step."""
    job = data.draw(jobs())
    configuration = data.draw(configurations(job))
    before = time_ledger(job, configuration, calibration()).step_seconds
    after = time_ledger(on_faster(job, field, factor), configuration, calibration()).step_seconds
    assert after <= before * (1 + 1e-12)


@given(st.data())
def test_one_device_communicates_nothing(data: st.DataObject) -> None:
    """A step on one device has no communication term, exposed or hidden."""
    job = data.draw(jobs())
    drawn = data.draw(configurations(job))
    layers = job.model.num_hidden_layers
    alone = drawn.model_copy(
        update={
            "tensor_parallel": 1, "context_parallel": 1, "expert_parallel": 1, "expert_tensor_parallel": 1,
            "pipeline_parallel": 1, "virtual_pipeline_stages": 1, "data_parallel": 1,
            "stages": (Stage(layers=layers, recompute=RecomputeCounts(full=layers)),),
        }
    )  # fmt: skip
    ledger = time_ledger(job, alone, calibration())
    for term in (
        "tensor_parallel",
        "context_parallel",
        "expert_parallel",
        "data_parallel",
        "point_to_point",
        "pipeline_bubble",
    ):
        assert ledger.exposed[term] == 0.0
        assert ledger.hidden.get(term, 0.0) == 0.0


@given(st.data())
def test_a_step_is_linear_in_its_micro_batches(data: st.DataObject) -> None:
    """Each further micro-batch costs the same: the slowest stage's time."""
    job = data.draw(jobs())
    configuration = data.draw(configurations(job))

    def step(m: int) -> TimeLedger:
        return time_ledger(job, configuration.model_copy(update={"gradient_accumulation_steps": m}), calibration())

    one, two, nine = step(1), step(2), step(9)
    assert two.step_seconds - one.step_seconds == pytest.approx(max(one.stage_seconds), rel=1e-9)
    assert nine.step_seconds - one.step_seconds == pytest.approx(8 * max(one.stage_seconds), rel=1e-9)
