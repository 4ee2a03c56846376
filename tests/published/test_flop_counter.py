"""Model FLOPs against torch's flop counter over transformers' own models."""

from typing import Any

import pytest
import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode

from cost_models.hf_config import read_config
from cost_models.hf_config.presets import presets
from cost_models.job import Job
from cost_models.pools import pool
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.training import TrainingSpec
from cost_models.time.flops import model_flops

pytestmark = pytest.mark.torch

LAYERS, SEQUENCE, BATCH = 2, 256, 2
DENSE = ("llama-3-8b", "gpt2", "opt-125m", "pythia-70m", "qwen3-0.6b", "gemma-2b")
MIXTURE = {
    "model_type": "mixtral", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 160,
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2,
}  # fmt: skip
EAGER = {"attn_implementation": "eager", "experts_implementation": "eager"}
UNCOUNTED = 2e-3
"""Rotary tables, which transformers makes by a matrix product, and nothing else."""


def counted(config: dict[str, Any], device: str) -> float:
    """FLOPs of a forward and a backward pass, as torch counts them, in eager attention and expert by expert."""
    text = dict(config)
    theirs = transformers.AutoConfig.for_model(text.pop("model_type"), **text)
    with torch.device(device):
        network = transformers.AutoModelForCausalLM.from_config(theirs, **EAGER).train()
        tokens = torch.ones(BATCH, SEQUENCE, dtype=torch.long)
        mask = torch.zeros(BATCH, 1, SEQUENCE, SEQUENCE)
        positions = torch.arange(SEQUENCE)[None]
    with FlopCounterMode(display=False) as counter:
        output = network(input_ids=tokens, attention_mask=mask, position_ids=positions, use_cache=False)
        output.logits.sum().backward()
    return float(counter.get_total_flops())


def ours(config: dict[str, Any]) -> float:
    """Ours for the same."""
    cluster = ClusterSpec(pools=(pool(device="a100-sxm-80gb", nodes=1, gpus_per_node=1),))
    training = TrainingSpec(sequence_length=SEQUENCE, global_batch_size=BATCH)
    return model_flops(Job(model=read_config(config), cluster=cluster, training=training), BATCH)


@pytest.mark.parametrize("name", DENSE)
def test_dense_models(name: str) -> None:
    config = dict(presets()[name].config)
    config["n_layer" if "n_layer" in config else "num_hidden_layers"] = LAYERS
    config.pop("layer_types", None)
    assert ours(config) == pytest.approx(counted(config, "meta"), rel=UNCOUNTED)


def test_a_mixture_counts_the_experts_that_a_token_meets() -> None:
    assert ours(MIXTURE) == pytest.approx(counted(MIXTURE, "cpu"), rel=UNCOUNTED)


def test_frozen_weights_need_four_flops_an_element_instead_of_six() -> None:
    """Only the gradient of inputs is left of a frozen matrix's backward; torch skips the other product."""
    text = {**MIXTURE, "model_type": "llama"}
    theirs = transformers.AutoConfig.for_model("llama", **{k: v for k, v in text.items() if k != "model_type"})
    network = transformers.AutoModelForCausalLM.from_config(theirs, **EAGER).requires_grad_(False)
    embedded = torch.zeros(BATCH, SEQUENCE, theirs.hidden_size, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        labels = torch.ones(BATCH, SEQUENCE, dtype=torch.long)
        network(inputs_embeds=embedded, labels=labels, use_cache=False).loss.backward()
    cluster = ClusterSpec(pools=(pool(device="a100-sxm-80gb", nodes=1, gpus_per_node=1),))
    training = TrainingSpec(sequence_length=SEQUENCE, global_batch_size=BATCH, method="lora")
    job = Job(model=read_config(text), cluster=cluster, training=training)
    assert model_flops(job, BATCH) == pytest.approx(counter.get_total_flops(), rel=UNCOUNTED)
