"""Communication hides behind compute that exists, on links of any speed, and never behind more of it."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cost_models.catalog import calibration
from cost_models.job import Job
from cost_models.schedule import STAGE_CLASSES
from cost_models.specs.choices import RECOMPUTES
from cost_models.specs.cluster import ClusterSpec
from cost_models.strategy import Strategy
from cost_models.time import time_ledger
from cost_models.time.frame import Frame
from cost_models.time.layer import layer_work
from cost_models.time.pipeline import boundary_seconds, boundary_share, wire_seconds
from cost_models.time.stage import layer_tail, stage_tail, stage_work
from cost_models.time.work import Work
from tests.properties.test_time import on_faster
from tests.properties.time_cases import configurations, jobs

COMPUTE = ("compute", "attention", "elementwise", "launch_floor", "recompute")
SLOWDOWNS = st.sampled_from([1.0, 1e-1, 1e-2, 1e-3, 1e-4])


@st.composite
def slow_jobs(draw: st.DrawFn) -> Job:
    """A job whose network, links and PCIe are up to ten thousand times slower than they come."""
    job = draw(jobs())
    pool, device = job.pool, job.pool.device
    links = {
        name: getattr(pool, name).model_copy(update={"bandwidth": getattr(pool, name).bandwidth * draw(SLOWDOWNS)})
        for name in ("intra_node_link", "inter_node_link")
    }
    device = device.model_copy(update={"pcie_bandwidth": device.pcie_bandwidth * draw(SLOWDOWNS)})
    pool = pool.model_copy(update={"device": device, **links})
    return Job(model=job.model, cluster=ClusterSpec(pools=(pool,)), training=job.training)


def compute(work: Work) -> float:
    """Seconds in which something can hide."""
    return sum(float(work.exposed.get(name, 0.0)) for name in COMPUTE)


def hidden(work: Work, *but: str) -> float:
    """Hidden seconds of all terms except `but`."""
    return sum(float(seconds) for name, seconds in work.hidden.items() if name not in but)


def drawn(data: st.DataObject) -> tuple[Job, Any, Frame]:
    job = data.draw(slow_jobs())
    configuration = data.draw(configurations(job))
    return job, configuration, Frame(job=job, strategy=Strategy.of(configuration), calibration=calibration())


@given(st.data())
def test_a_layer_hides_no_more_than_it_computes(data: st.DataObject) -> None:
    """Ring, all-to-all, gathers, reductions and copies of one micro-batch share its compute; so does the last one's."""
    job, _, frame = drawn(data)
    for kind in job.model.layer_kinds:
        for mode in RECOMPUTES:
            work = layer_work(frame, kind, mode)
            assert hidden(work) <= compute(work) * (1 + 1e-9)
        plain = layer_work(frame, kind, "none")
        assert hidden(plain) + hidden(layer_tail(frame, kind)) <= compute(plain) * (1 + 1e-9)


@given(st.data())
def test_the_ends_hide_no_more_than_they_compute(data: st.DataObject) -> None:
    """Embedding and head cover their own gradients and parameters only."""
    _, _, frame = drawn(data)
    for stage in range(len(STAGE_CLASSES)):
        work = stage_work(frame, stage)
        own = hidden(work, "point_to_point") + hidden(stage_tail(frame, stage))
        assert own <= compute(work) * (1 + 1e-9)


@given(st.data())
def test_boundaries_hide_behind_a_mean_stage(data: st.DataObject) -> None:
    """All hidden communication of a mean stage's last micro-batch fits in its compute."""
    job, configuration, frame = drawn(data)
    p = configuration.pipeline_parallel
    works = [(layer_work(frame, kind, "none"), layer_tail(frame, kind)) for kind in job.model.layer_sequence]
    covered = sum(hidden(work) + hidden(tail) for work, tail in works) / p + float(boundary_seconds(frame)[1])
    assert covered <= sum(compute(work) for work, _ in works) / p * (1 + 1e-9)
    assert 0 <= float(boundary_share(frame)) <= 1


@given(st.data())
def test_nothing_passes_a_boundary_faster_than_the_wire(data: st.DataObject) -> None:
    """m micro-batches cross v boundaries a direction; and no more is hidden than the step lasts."""
    job, configuration, frame = drawn(data)
    ledger = time_ledger(job, configuration, calibration())
    floor = configuration.gradient_accumulation_steps * float(wire_seconds(frame))
    assert ledger.step_seconds >= floor * (1 - 1e-9)
    assert all(seconds <= ledger.step_seconds * (1 + 1e-9) for seconds in ledger.hidden.values())


@given(st.data(), st.sampled_from(["pcie_bandwidth", "intra_node_link", "inter_node_link"]), st.floats(1.0, 100.0))
def test_a_faster_link_is_never_slower(data: st.DataObject, field: str, factor: float) -> None:
    job, configuration, _ = drawn(data)
    before = time_ledger(job, configuration, calibration()).step_seconds
    after = time_ledger(on_faster(job, field, factor), configuration, calibration()).step_seconds
    assert after <= before * (1 + 1e-12)


@given(st.data(), st.sampled_from(["peak_flops", "memory_bandwidth"]), st.floats(1.0, 10.0))
def test_less_to_hide_behind_never_costs_more_than_it_saves(data: st.DataObject, field: str, factor: float) -> None:
    """A faster device leaves more exposed, but no more than the compute that it saves."""
    job, configuration, _ = drawn(data)
    # Stages of equal content: a stage covers its boundaries as a mean one does.
    configuration = configuration.model_copy(update={"pipeline_parallel": 1, "virtual_pipeline_stages": 1})
    stage = configuration.stages[0]
    layers = job.model.num_hidden_layers
    counts = stage.recompute.model_copy(update={"full": 0, "selective": 0, "none": layers})
    configuration = configuration.model_copy(
        update={"stages": (stage.model_copy(update={"layers": layers, "recompute": counts}),)}
    )
    before = time_ledger(job, configuration, calibration()).step_seconds
    after = time_ledger(on_faster(job, field, factor), configuration, calibration()).step_seconds
    assert after <= before * (1 + 1e-9)
