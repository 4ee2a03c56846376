"""An architecture whose code is not written down gets a generic ledger and a wider interval."""

from cost_models import catalog
from cost_models.job import Job
from cost_models.ledger import MemoryLedger
from cost_models.memory import memory_ledger
from cost_models.memory.architectures import generic, known
from cost_models.pools import pool
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.configuration import Configuration
from cost_models.specs.training import TrainingSpec


def ledger(model_type: str) -> MemoryLedger:
    model = catalog.model("llama-3-8b").model_copy(update={"model_type": model_type})
    job = Job(
        model=model,
        cluster=ClusterSpec(pools=(pool(device="h100-sxm-80gb", gpus_per_node=8),)),
        training=TrainingSpec(sequence_length=2048, global_batch_size=8),
    )
    layers = model.num_hidden_layers
    configuration = Configuration.read(
        {
            "backend": {"name": "fsdp"},
            "data_parallel": 8,
            "zero_stage": 3,
            "attention": "sdpa",
            "stages": [{"layers": layers, "recompute": {"none": layers}}],
        }
    )
    return memory_ledger(job, configuration, catalog.calibration(), oom_risk=0.01)


def test_a_llama_like_stranger_is_priced_as_llama_but_less_surely() -> None:
    llama, stranger = ledger("llama"), ledger("never-heard-of")
    assert stranger.allocated_bytes == llama.allocated_bytes
    assert stranger.allocated_quantile > llama.allocated_quantile


def test_a_custom_block_is_what_its_numbers_say() -> None:
    assert ledger("custom").allocated_quantile == ledger("llama").allocated_quantile


def test_every_fact_names_its_code() -> None:
    read = [facts.source for facts in known().values()]
    assert all("transformers models/" in text or "litgpt/model.py" in text for text in read)
    assert generic(catalog.model("gpt2")).norm == "kernel"
