from typing import Any

import pytest

from cost_models import catalog
from cost_models.parameters import (
    count,
    embedding_weights,
    head_weights,
    layer_parameters,
    local_parameters,
    total_parameters,
)
from cost_models.specs.model import LayerKind, MoeSpec
from tests.unit.cost_models.memory.cases import SMALL, ledger, term

PSI = total_parameters(SMALL)


@pytest.mark.parametrize(
    ("backend", "weights", "gradients", "states"),
    [("deepspeed", 2, 2, 12), ("megatron", 2, 4, 12), ("fsdp", 4, 4, 8), ("ddp", 4, 4, 8)],
)
def test_each_back_end_lays_out_its_own_bytes_per_parameter(
    backend: str, weights: int, gradients: int, states: int
) -> None:
    named = ledger(backend=backend)
    assert term(named, "optimizer_step", "weights") == pytest.approx(weights * PSI)
    assert term(named, "optimizer_step", "gradients") == pytest.approx(gradients * PSI)
    assert term(named, "optimizer_step", "optimizer_states") == pytest.approx(states * PSI)


def test_deepspeed_flattens_its_gradient_partition_and_casts_it_to_fp32_at_the_step() -> None:
    named = ledger(zero_stage=3, data_parallel=8, cluster={"nodes": 1})
    assert term(named, "optimizer_step", "step_temporaries") == pytest.approx((2 + 4) * PSI / 8)
    assert term(named, "loss", "step_temporaries") == 0


@pytest.mark.parametrize(
    ("optimizer", "per_parameter"),
    [("adamw", 12), ("adamw-8bit", 4 + 2.03125), ("sgd", 8), ("lion", 8), ("1-bit-adam", 12)],
)
def test_optimizers_keep_their_states_beside_the_master(optimizer: str, per_parameter: float) -> None:
    named = ledger(training={"optimizer": optimizer})
    assert term(named, "optimizer_step", "optimizer_states") == pytest.approx(per_parameter * PSI)


def test_adafactor_keeps_rows_and_columns_and_muon_one_moment_of_matrices() -> None:
    factored = term(ledger(training={"optimizer": "adafactor"}), "optimizer_step", "optimizer_states")
    assert 4 * PSI < factored < 4.02 * PSI
    muon = term(ledger(training={"optimizer": "muon"}), "optimizer_step", "optimizer_states")
    others = count(w for w in embedding_weights(SMALL) if not w.linear) + 1024 * (2 * 8 + 1)
    assert muon == pytest.approx(8 * PSI + 4 * others)


def test_grouped_keys_are_replicated_beyond_their_heads() -> None:
    # 4 key-value heads over 8 ranks: each rank holds one head's columns, 1024 x 64, twice.
    terms = [term(ledger(backend="megatron", tensor_parallel=tp), "load", "weights") for tp in (4, 8)]
    kv = 2 * 2 * 1024 * 64 * 8
    replicated = 2 * 1024 * (2 * 8 + 1)  # the norms
    assert terms[1] == pytest.approx((terms[0] - kv - replicated) / 2 + kv + replicated)


def test_a_tied_embedding_has_a_second_copy_on_the_last_stage_only_with_a_pipeline() -> None:
    tied = SMALL.model_copy(update={"tie_word_embeddings": True})
    halves = [{"layers": 4, "recompute": {"none": 4}}] * 2
    two = ledger(tied, backend="megatron", pipeline_parallel=2, stages=halves)
    one = ledger(tied, backend="megatron")
    table = 2 * 32768 * 1024
    summed = sum(term(two, "load", "weights", stage) for stage in (0, 1))
    assert summed == pytest.approx(term(one, "load", "weights") + table)


def test_experts_shard_their_states_over_expert_data_parallel_ranks() -> None:
    moe = MoeSpec(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=2816)
    model = SMALL.model_copy(update={"moe": moe, "layers": (LayerKind(mlp="moe"),) * 8})
    named = ledger(
        model, backend="megatron", data_parallel=8, expert_parallel=4, tensor_parallel=2, zero_stage=1,
        cluster={"nodes": 2},
    )  # fmt: skip
    experts = 8 * 3 * 1024 * 2816 * 8 / 4
    layer = (layer_parameters(model)[0] - 8 * 3 * 1024 * 2816) * 8
    held = local_parameters(
        model, embedding_weights(model) + head_weights(model), tensor_parallel=2, vocabulary_multiple=128
    )
    replicated = (2 * 1024 + 8 * 1024) * 8  # norms and router
    shared = (layer - replicated) / 2 + replicated + float(held)
    # dp cp tp / (ep etp) = 8 x 2 / 4 = 4 ranks share an expert's states, 8 all others'.
    assert term(named, "optimizer_step", "optimizer_states") == pytest.approx(12 * (shared / 8 + experts / 4))


@pytest.mark.parametrize(
    ("compression", "bytes_per_parameter"), [("none", 0), ("bf16", 0), ("powersgd", 4), ("one-bit", 4), ("top-k", 4)]
)
def test_error_feedback_of_compression_is_unsharded(compression: str, bytes_per_parameter: float) -> None:
    named = ledger(data_parallel=8, gradient_compression=compression)
    assert term(named, "loss", "error_feedback") == pytest.approx(bytes_per_parameter * PSI)
    assert term(named, "load", "error_feedback") == 0


def test_ddp_keeps_a_second_copy_of_its_gradients_in_buckets() -> None:
    assert term(ledger(backend="ddp", data_parallel=8), "loss", "buckets") == pytest.approx(4 * PSI)
    assert term(ledger(backend="ddp"), "loss", "buckets") == 0


def lora(**training: Any) -> dict[str, Any]:
    return {"method": "lora", "lora": {"rank": 8, **training}}


def test_adapters_are_fp32_and_only_they_have_states() -> None:
    named = ledger(backend="ddp", training=lora())
    h, f, q, kv = 1024, 2816, 1024, 256
    adapters = 8 * 8 * ((h + q) + 2 * (h + kv) + (q + h) + 2 * (h + f) + (f + h))
    assert term(named, "optimizer_step", "lora_adapters") == 4 * adapters
    assert term(named, "optimizer_step", "gradients") == 4 * adapters
    assert term(named, "optimizer_step", "optimizer_states") == 8 * adapters
    assert term(named, "optimizer_step", "weights") == pytest.approx(2 * PSI)


def test_trained_embeddings_cost_fourteen_bytes_beside_the_frozen_ones() -> None:
    plain, trained = (ledger(backend="ddp", training=lora(train_embeddings=t)) for t in (False, True))
    tables = 2 * 32768 * 1024
    more = trained.stages[0].allocated("optimizer_step") - plain.stages[0].allocated("optimizer_step")
    assert more == pytest.approx(14 * tables)


@pytest.mark.parametrize(("double", "expected"), [(False, 0.5625), (True, 0.515869140625)])
def test_four_bit_weights_cost_a_nibble_and_their_scales(double: bool, expected: float) -> None:
    named = ledger(backend="ddp", training={"method": "qlora", "lora": {"double_quantization": double}})
    linear = 8 * (2 * 1024 * 1024 + 2 * 1024 * 256 + 3 * 1024 * 2816)
    assert term(named, "load", "four_bit_weights") == pytest.approx(expected * linear)
    assert term(named, "load", "weights") == pytest.approx(4 * (PSI - linear))
    assert term(named, "backward_last_layer", "dequantized_weights") == 2 * 1024 * 2816


def test_zero_3_leaves_four_bit_weights_whole_where_the_back_end_cannot_shard_them() -> None:
    training = {"method": "qlora"}
    alone = term(ledger(training=training), "load", "four_bit_weights")
    assert term(ledger(training=training, zero_stage=3, data_parallel=8), "load", "four_bit_weights") == alone
    sharded = ledger(backend="fsdp", training=training, zero_stage=3, data_parallel=8)
    assert term(sharded, "load", "four_bit_weights") == pytest.approx(alone / 8)


def test_a_missing_precision_is_no_number() -> None:
    pure = catalog.framework("ddp-pure-bf16")
    assert "fp8" not in pure.layouts
    assert pure.layouts["bf16"].weight + pure.layouts["bf16"].gradient + 2 * pure.layouts["bf16"].state == 8


@pytest.mark.parametrize(("stage", "copies"), [(0, 0), (1, 1), (2, 1), (3, 1)])
def test_deepspeed_updates_a_copy_of_fp32_weights_where_the_optimizer_is_sharded(stage: int, copies: int) -> None:
    named = ledger(precision="fp32", zero_stage=stage, data_parallel=8, cluster={"nodes": 1})
    shards = 8 if stage else 1
    assert term(named, "loss", "optimizer_states") == pytest.approx((8 + 4 * copies) * PSI / shards)


def test_deepspeed_all_reduces_a_flat_copy_where_nothing_is_sharded() -> None:
    plain = ledger(precision="fp32", zero_stage=0, data_parallel=8, cluster={"nodes": 1})
    most = catalog.framework("deepspeed").allreduced_parameters
    assert term(plain, "end_of_backward", "buckets") == pytest.approx(4 * min(PSI, most))
    assert term(plain, "optimizer_step", "buckets") == 0
