"""Reserved bytes by replay: limits, and runs whose allocated and reserved peaks are published."""

from typing import Any

import pytest

from cost_models import catalog
from cost_models.job import Job
from cost_models.memory import reserved_ratio
from cost_models.memory.events import layer_events
from cost_models.memory.options import facts_of
from cost_models.memory.replay import _sampled
from cost_models.memory.setting import Setting
from cost_models.pools import pool
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.configuration import Configuration
from cost_models.specs.framework import FrameworkFacts
from cost_models.specs.model import ModelSpec
from cost_models.specs.training import TrainingSpec
from cost_models.strategy import Strategy
from tests.unit.cost_models.memory.cases import SMALL


def asked(
    model: ModelSpec = SMALL, *, backend: str = "ddp", device: str = "t4", recompute: str = "none",
    training: dict[str, Any] | None = None, **configuration: Any,
) -> tuple[Job, Configuration]:  # fmt: skip
    """A job on one device, and its configuration."""
    job = Job(
        model=model,
        cluster=ClusterSpec(pools=(pool(device=device),)),
        training=TrainingSpec(**{"sequence_length": 1024, "global_batch_size": 64, **(training or {})}),
    )
    layers = model.num_hidden_layers
    stage = {"layers": layers, "recompute": {recompute: layers}}
    return job, Configuration.read({"backend": {"name": backend}, "stages": [stage], **configuration})


def ratio(job: Job, configuration: Configuration, facts: Any = None) -> float:
    """The replay's ratio of the only stage."""
    found = reserved_ratio(job, configuration, catalog.calibration(), stage=0, frameworks=facts)
    assert found is not None
    return found


@pytest.mark.parametrize("backend", ["ddp", "fsdp", "deepspeed"])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_more_is_reserved_than_allocated_but_not_twice_as_much(backend: str, recompute: str) -> None:
    job, configuration = asked(backend=backend, recompute=recompute, device="h100-sxm-80gb")
    assert 1.0 < ratio(job, configuration) < 2.0


def test_a_segment_that_grows_wastes_less_over_several_lengths() -> None:
    def wasted(**training: Any) -> float:
        lengths = (512, 1024, 2048, 4096)
        return sum(ratio(*asked(recompute="full", training={"sequence_length": s, **training})) for s in lengths)

    assert wasted(expandable_segments=True) < wasted()


def test_the_same_configuration_replays_the_same() -> None:
    job, configuration = asked(recompute="full")
    assert ratio(job, configuration) == ratio(job, configuration)


def test_written_out_attention_fragments_more() -> None:
    training = {"method": "qlora", "sequence_length": 4096}
    job, fused = asked(recompute="full", training=training, attention="sdpa", precision="fp16")
    _, written_out = asked(recompute="full", training=training, attention="eager", precision="fp16")
    assert ratio(job, written_out) > ratio(job, fused)


def test_no_order_is_known_of_fused_layers_and_none_is_needed_on_a_cpu() -> None:
    for backend, device in (("megatron", "a100-sxm-80gb"), ("ddp", "cpu")):
        job, configuration = asked(backend=backend, device=device)
        assert reserved_ratio(job, configuration, catalog.calibration(), stage=0) is None


def test_what_a_layer_saves_is_alive_between_forward_and_backward_and_gone_after() -> None:
    job, configuration = asked()
    setting = Setting(job=job, strategy=Strategy.of(configuration), frameworks=facts_of(job.training, None))
    events = layer_events(setting, setting.kinds[0])
    alive: dict[int, float] = {}
    for key, size in events.forward:
        if size:
            alive[key] = size
        else:
            del alive[key]
    assert set(alive) == set(events.saved)
    alive[events.incoming] = 1.0
    for key, size in events.backward:
        if size:
            alive[key] = size
        else:
            alive.pop(key, None)
    assert set(alive) <= {events.outgoing, events.incoming}
    assert events.outgoing in alive


PUBLISHED = [
    # fitcheck-llm 0.3.1 data/measurements/t4-sweep-2026-09-15.json, runs 6, 9, 35: allocated and reserved [GiB];
    # transformers + peft, LoRA r=32 on q, k, v, o
    ("smollm2-1.7b", "qlora", "eager", 4, 1024, 5.1731, 6.832),
    ("smollm2-1.7b", "lora", "eager", 4, 1024, 6.3835, 7.5527),
    ("tinyllama-1.1b", "lora", "sdpa", 2, 2048, 4.2521, 4.5859),
]


@pytest.mark.parametrize(("name", "method", "attention", "batch", "length", "allocated", "reserved"), PUBLISHED)
def test_published_runs(
    name: str, method: str, attention: str, batch: int, length: int, allocated: float, reserved: float
) -> None:
    lora = {"rank": 32, "target_modules": "attention", "double_quantization": False}
    job, configuration = asked(
        catalog.model(name), recompute="full", precision="fp16", attention=attention, micro_batch_size=batch,
        training={"method": method, "sequence_length": length, "lora": lora, "global_batch_size": batch}, lora=lora,
    )  # fmt: skip
    facts: FrameworkFacts = catalog.framework("ddp")
    pure = catalog.framework("ddp-pure-bf16").layouts
    held = facts.model_copy(update={"kept_outputs": True, "layouts": {**facts.layouts, **pure}})
    assert ratio(job, configuration, facts={"ddp": held}) == pytest.approx(reserved / allocated, rel=0.08)


def test_a_deep_stage_is_replayed_by_a_sample_of_its_layers() -> None:
    """A thousand layers take no longer than a hundred, and reserve in the same proportion."""
    ratios = [ratio(*asked(SMALL.model_copy(update={"num_hidden_layers": n}))) for n in (85, 100, 1000)]
    assert ratios == pytest.approx([ratios[0]] * 3, rel=0.02)
    kept = _sampled(list(range(1000)), 50)
    assert (len(kept), kept[0], kept[-1]) == (50, 0, 999)
    assert _sampled([1, 2, 3], 1) == [1, 2, 3]
