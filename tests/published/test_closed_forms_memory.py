"""Closed forms of the literature, where their assumptions hold: the ledger must reproduce them exactly."""

from typing import Any

import pytest

from cost_models import catalog
from cost_models.job import Job
from cost_models.memory import memory_ledger
from cost_models.memory.activations import boundary_bytes, saved_bytes
from cost_models.memory.eager import layer as eager_layer
from cost_models.memory.megatron import layer as megatron_layer
from cost_models.memory.options import facts_of
from cost_models.memory.setting import Setting, catalogued
from cost_models.parameters import total_parameters
from cost_models.pools import pool
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.configuration import Configuration
from cost_models.specs.model import ModelSpec
from cost_models.specs.training import TrainingSpec
from cost_models.strategy import Strategy

GPT = ModelSpec(
    name="gpt", hidden_size=1024, num_hidden_layers=4, num_attention_heads=16, num_key_value_heads=16, head_dim=64,
    intermediate_size=4096, vocab_size=51200, gated_mlp=False, activation="gelu", normalization="layernorm",
    tie_word_embeddings=True, position_embedding="learned", position_embedding_rows=2048,
)  # fmt: skip


def job(model: ModelSpec, sequence: int = 2048, **training: Any) -> Job:
    return Job(
        model=model,
        cluster=ClusterSpec(pools=(pool(device="a100-sxm-80gb", nodes=8),)),
        training=TrainingSpec(sequence_length=sequence, global_batch_size=64, **training),
    )


def configuration(backend: str, layers: int, **fields: Any) -> Configuration:
    return Configuration.read(
        {"backend": {"name": backend}, "stages": [{"layers": layers, "recompute": {"none": layers}}], **fields}
    )


def setting(
    model: ModelSpec, backend: str, *, sequence: int = 2048, changes: dict[str, Any] | None = None, **fields: Any
) -> Setting:
    facts = catalog.framework(backend).model_copy(update=changes or {})
    c = configuration(backend, model.num_hidden_layers, **fields)
    return Setting(job=job(model, sequence), strategy=Strategy.of(c), frameworks=catalogued({backend: facts}))


def per_token_width(s: Setting, mode: int = 0, *, megatron: bool = False) -> float:
    """Saved bytes of one layer per token and hidden size."""
    entries = (megatron_layer if megatron else eager_layer)(s, s.kinds[0])
    return float(saved_bytes(entries, mode)) / s.model.hidden_size


@pytest.mark.parametrize("shards", [1, 8, 64])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_zero_keeps_two_two_and_twelve_over_its_shards(stage: int, shards: int) -> None:
    # ZeRO, arXiv:1910.02054, figure 1: (2 + 2 + K) Psi with K = 12, divided from P_os over P_os+g to P_os+g+p.
    model = GPT.model_copy(update={"tie_word_embeddings": False})
    c = configuration("deepspeed", 4, data_parallel=shards, zero_stage=stage)
    (held,) = memory_ledger(job(model), c, catalog.calibration(), oom_risk=0.5).stages
    terms, psi = held.instants["optimizer_step"], total_parameters(model)
    over = {level: shards if stage >= level else 1 for level in (1, 2, 3)}
    assert terms["weights"] == pytest.approx(2 * psi / over[3], rel=1e-12)
    assert terms["gradients"] == pytest.approx(2 * psi / over[2], rel=1e-12)
    assert terms["optimizer_states"] == pytest.approx(12 * psi / over[1], rel=1e-12)


@pytest.mark.parametrize("tensor", [1, 2, 4, 8])
def test_a_gpt_layer_keeps_what_korthikanti_count(tensor: int) -> None:
    # arXiv:2205.05198, equations 2 and 4: sbh (34 + 5as/h) / t with sequence parallelism,
    # sbh (10 + 24/t + 5as/(ht)) without.
    h, a, s = GPT.hidden_size, GPT.num_attention_heads, 2048
    common: dict[str, Any] = {"attention": "eager", "tensor_parallel": tensor}
    parallel = setting(GPT, "megatron", changes={"dropout": True}, sequence_parallel=True, **common)
    assert per_token_width(parallel, megatron=True) == pytest.approx((34 + 5 * a * s / h) / tensor, rel=1e-12)
    plain = setting(GPT, "megatron", changes={"dropout": True}, **common)
    assert per_token_width(plain, megatron=True) == pytest.approx(10 + (24 + 5 * a * s / h) / tensor, rel=1e-12)


def test_stated_dropout_is_what_korthikanti_count() -> None:
    # arXiv:2205.05198, equation 1: sbh (34 + 5as/h), of which masks are sbh + sbh + as^2 b, the dropped scores 2as^2 b.
    h, a, s = GPT.hidden_size, GPT.num_attention_heads, 2048
    c = configuration("megatron", GPT.num_hidden_layers, attention="eager")

    def kept(dropout: float | None) -> float:
        asked = job(GPT, s, dropout=dropout)
        facts = facts_of(asked.training, None)
        return per_token_width(Setting(job=asked, strategy=Strategy.of(c), frameworks=facts), megatron=True)

    assert kept(0.1) == pytest.approx(34 + 5 * a * s / h, rel=1e-12)
    assert kept(0.0) == kept(None) == pytest.approx(32 + 2 * a * s / h, rel=1e-12)


def test_dropout_in_eager_modules_keeps_a_mask_a_branch_and_one_of_scores() -> None:
    # torch native_dropout saves one byte an element: 2 sbh and as^2 b. The product keeps the dropped scores in place of
    # the cast ones; the softmax keeps its fp32 result either way.
    h, a, s = GPT.hidden_size, GPT.num_attention_heads, 2048

    def kept(dropout: float, attention: str) -> float:
        asked = job(GPT, s, dropout=dropout)
        c = configuration("deepspeed", GPT.num_hidden_layers, attention=attention)
        return per_token_width(Setting(job=asked, strategy=Strategy.of(c), frameworks=facts_of(asked.training, None)))

    assert kept(0.1, "sdpa") - kept(0.0, "sdpa") == pytest.approx(2, rel=1e-12)
    assert kept(0.1, "eager") - kept(0.0, "eager") == pytest.approx(2 + a * s / h, rel=1e-12)


def test_selective_recompute_drops_the_attention_core_and_full_keeps_the_input() -> None:
    # arXiv:2205.05198, section 5: 34 sbh with the attention core repeated, 2 sbh with everything repeated.
    s = setting(GPT, "megatron", changes={"dropout": True}, attention="eager")
    assert per_token_width(s, 1, megatron=True) == pytest.approx(34, rel=1e-12)
    assert float(boundary_bytes(s)) == 2 * GPT.hidden_size * 2048


@pytest.mark.parametrize(
    ("model", "attention", "sequence", "expected"),
    [
        ("llama-2-7b", "sdpa", 2048, 45.53),
        ("llama-3-8b", "sdpa", 2048, 49.03),
        ("llama-3-70b", "sdpa", 2048, 48.53),
        ("qwen2.5-7b", "sdpa", 2048, 62.9),
        ("llama-2-7b", "eager", 2048, 141.5),
        ("gpt2-xl", "sdpa", 1024, 56.07),
        ("gemma-2-9b", "eager", 2048, 150.0),
        ("mixtral-8x7b", "sdpa", 2048, 85.06),
        ("phi-3.5-mini", "sdpa", 2048, 51.38),
        ("olmo-2-7b", "sdpa", 2048, 65.56),
        ("phi-1", "sdpa", 2048, 54.07),
    ],
)
def test_an_eager_layer_keeps_what_the_tracker_shows(
    model: str, attention: str, sequence: int, expected: float
) -> None:
    # Activation after forward per token, layer and hidden size, torch 2.13 MemTracker over transformers 5.24.
    s = setting(catalog.model(model), "deepspeed", sequence=sequence, attention=attention)
    assert per_token_width(s) == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize(("model", "expected"), [("llama-3-8b", 34.0), ("llama-3-70b", 33.5), ("llama-3.1-405b", 32.0)])
def test_a_megatron_swiglu_layer_keeps_twelve_h_four_kv_and_six_f(model: str, expected: float) -> None:
    # Flash attention, no dropout: 8h + 4q + 4kv + 6f = 12h + 4kv + 6f, and 4 bytes of log-sum-exp a head.
    spec = catalog.model(model)
    s = setting(spec, "megatron")
    exact = 12 * spec.hidden_size + 4 * spec.key_value_width + 6 * spec.intermediate_size + 4 * spec.num_attention_heads
    assert per_token_width(s, megatron=True) == pytest.approx(exact / spec.hidden_size, rel=1e-12)
    assert per_token_width(s, megatron=True) == pytest.approx(expected, abs=0.6)


def test_context_parallel_keeps_a_second_copy_of_the_output() -> None:
    spec = catalog.model("llama-3-8b")
    one, two = (per_token_width(setting(spec, "megatron", context_parallel=cp), megatron=True) for cp in (1, 2))
    assert two - one == pytest.approx(2 * spec.query_width / spec.hidden_size, rel=1e-12)
