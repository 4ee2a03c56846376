"""What must hold of every predicted byte, whatever the model, machine and configuration."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from cost_models import schedule
from cost_models.catalog import calibration
from cost_models.job import Job
from cost_models.ledger import MemoryLedger
from cost_models.memory import memory_ledger, memory_table
from cost_models.memory.instants import INSTANTS
from cost_models.specs.choices import RECOMPUTES
from cost_models.specs.configuration import Configuration
from cost_models.strategy import Strategy
from cost_models.table import MemoryTable
from cost_models.time.layout import stage_layers
from tests.properties.time_cases import configurations, jobs
from tests.scale import scaled

PROPERTY = settings(max_examples=scaled(40, 600), deadline=None, suppress_health_check=list(HealthCheck))
NAMES = [instant.name for instant in INSTANTS]


def rows(*configs: Configuration) -> Strategy:
    """Configurations as the rows of one strategy."""
    parts = [Strategy.of(c) for c in configs]
    return Strategy(**{f.name: np.array([getattr(p, f.name) for p in parts]) for f in fields(Strategy)})


def allocated(job: Job, configuration: Configuration, table: MemoryTable, row: int = 0) -> dict[tuple[int, str], float]:
    """Bytes of every stage and instant from a row of a table times the layer counts, by the docstring of
    `MemoryTable`."""
    kinds, p = list(job.model.layer_kinds), configuration.pipeline_parallel
    v, m = configuration.virtual_pipeline_stages, configuration.gradient_accumulation_steps
    counts = tuple(stage.layers for stage in configuration.stages)
    result: dict[tuple[int, str], float] = {}
    for s, layers in enumerate(stage_layers(job.model, configuration)):
        c = schedule.stage_class(s, p)
        present = [RECOMPUTES.index(mode) for _, mode in layers]
        for i, name in enumerate(NAMES):
            held = (
                max(schedule.stage_in_flight(counts, s, v, m) - table.released[i] / v, 0.0) * table.holds_activations[i]
            )
            mode = max(present) if table.selector[i] else min(present)
            size = table.constant[row, c, i] + held * table.stage_activation[row, c] + table.working[row, c, i, mode]
            for position, (kind, recompute) in enumerate(layers):
                j = kinds.index(kind)
                size += table.layer[row, j, i] + held * table.activation[row, j, RECOMPUTES.index(recompute)]
                if position < configuration.stages[s].optimizer_layers_offloaded:
                    size -= table.offload_saving[row, j]
            result[s, name] = float(size)
    return result


def ledger(job: Job, configuration: Configuration, **options: Any) -> MemoryLedger:
    return memory_ledger(job, configuration, calibration(), oom_risk=options.pop("oom_risk", 0.01), **options)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Job, Configuration]:
    job = draw(jobs())
    return job, draw(configurations(job))


def weights_and_states(ledger: MemoryLedger) -> float:
    """Weights and optimizer states of the fullest stage."""
    terms = ("weights", "four_bit_weights", "lora_adapters", "trainable_embeddings", "optimizer_states")
    return max(sum(stage.instants["optimizer_step"].get(term, 0.0) for term in terms) for stage in ledger.stages)


@PROPERTY
@given(cases())
def test_the_ledger_is_the_table_times_the_layer_counts(case: tuple[Job, Configuration]) -> None:
    job, configuration = case
    assume(configuration.precision != "fp8" or job.training.method == "full")
    table = memory_table(job, rows(configuration), calibration(), oom_risk=0.01)
    named = ledger(job, configuration)
    expected = allocated(job, configuration, table)
    for stage in named.stages:
        for name in NAMES:
            assert stage.allocated(name) == pytest.approx(expected[stage.stage, name], rel=1e-9, abs=1)


@PROPERTY
@given(cases())
def test_capacity_and_host_of_the_table_are_the_ledgers(case: tuple[Job, Configuration]) -> None:
    job, configuration = case
    table = memory_table(job, rows(configuration), calibration(), oom_risk=0.03)
    named = ledger(job, configuration, oom_risk=0.03)
    overhead = named.context_bytes + named.communicator_bytes
    margin = named.allocated_quantile * named.fragmentation_quantile
    assert float(table.capacity[0]) == pytest.approx((named.usable_bytes - overhead) / margin, rel=1e-12)
    assert float(table.host_capacity[0]) == pytest.approx(named.host_usable_bytes, rel=1e-12)
    kinds = list(job.model.layer_kinds)
    for s, layers in enumerate(stage_layers(job.model, configuration)):
        off = configuration.stages[s].optimizer_layers_offloaded
        c = schedule.stage_class(s, configuration.pipeline_parallel)
        size = table.host_constant[0, c] + sum(table.host_layer[0, kinds.index(kind)] for kind, _ in layers[:off])
        assert named.stages[s].host_bytes == pytest.approx(float(size), rel=1e-9)


@PROPERTY
@given(jobs(), st.data())
def test_a_row_of_a_vector_is_the_scalar(job: Job, data: st.DataObject) -> None:
    several = [data.draw(configurations(job)) for _ in range(3)]
    together = memory_table(job, rows(*several), calibration(), oom_risk=0.01)
    for index, configuration in enumerate(several):
        alone = memory_table(job, rows(configuration), calibration(), oom_risk=0.01)
        for f in fields(MemoryTable):
            whole, one = getattr(together, f.name), getattr(alone, f.name)
            np.testing.assert_array_equal(
                whole[index] if f.name not in MemoryTable.SHARED else whole,
                one if f.name in MemoryTable.SHARED else one[0],
            )


@PROPERTY
@given(cases())
def test_every_size_is_finite_and_no_instant_is_negative(case: tuple[Job, Configuration]) -> None:
    job, configuration = case
    assume(configuration.precision != "fp8" or job.training.method == "full")
    named = ledger(job, configuration)
    for stage in named.stages:
        assert all(np.isfinite(size) for terms in stage.instants.values() for size in terms.values())
        assert all(stage.allocated(name) >= 0 for name in NAMES)
        assert all(size >= 0 for terms in stage.instants.values() for size in terms.values())


@PROPERTY
@given(cases(), st.sampled_from(["data_parallel", "tensor_parallel", "zero_stage"]))
def test_more_shards_never_raise_weights_and_states(case: tuple[Job, Configuration], degree: str) -> None:
    job, configuration = case
    if degree == "zero_stage":
        assume(configuration.zero_stage < 3)
        update = {degree: configuration.zero_stage + 1}
    else:
        update = {degree: 2 * getattr(configuration, degree)}
    if degree == "tensor_parallel":
        # Padding adds up to 127 rows of the vocabulary on every rank; experts may be split along.
        assume(job.model.vocab_size % (256 * configuration.tensor_parallel) == 0)
        assume(configuration.expert_tensor_parallel == 1)
    after = configuration.model_copy(update=update)
    assert weights_and_states(ledger(job, after)) <= weights_and_states(ledger(job, configuration)) * (1 + 1e-12)


@PROPERTY
@given(cases())
def test_a_larger_micro_batch_never_lowers_the_peak(case: tuple[Job, Configuration]) -> None:
    job, configuration = case
    larger = configuration.model_copy(update={"micro_batch_size": 2 * configuration.micro_batch_size})
    before, after = ledger(job, configuration), ledger(job, larger)
    assert after.allocated_bytes >= before.allocated_bytes * (1 - 1e-12)


@PROPERTY
@given(cases())
def test_a_smaller_risk_never_shrinks_what_the_device_must_hold(case: tuple[Job, Configuration]) -> None:
    job, configuration = case
    sizes = [ledger(job, configuration, oom_risk=risk).conservative_bytes for risk in (0.5, 0.2, 0.05, 0.01, 0.001)]
    assert sizes == sorted(sizes)


@PROPERTY
@given(cases())
def test_full_recompute_keeps_less_than_none(case: tuple[Job, Configuration]) -> None:
    job, configuration = case
    table = memory_table(job, rows(configuration), calibration(), oom_risk=0.01)
    assert np.all(table.activation[..., 2] <= table.activation[..., 0])
    assert np.all(table.activation >= 0)
