"""The weight inventory: shards, replication, padding, active parameters."""

import numpy as np
import pytest

from cost_models.hf_config import model
from cost_models.parameters import (
    Split,
    Weight,
    active_parameters,
    attention_weights,
    count,
    embedding_weights,
    head_weights,
    layer_weights,
    local_parameters,
    mlp_weights,
    padded_vocabulary,
    total_parameters,
)
from cost_models.specs.model import LayerKind, ModelSpec


def test_weight_count() -> None:
    assert Weight(name="w", out_features=3, in_features=5).count == 15
    assert Weight(name="w", out_features=3, in_features=5, bias=True, copies=2).count == 36
    assert Weight(name="norm", out_features=7).count == 7


def test_llama_layer_by_hand() -> None:
    llama = model("llama-2-7b")
    assert count(attention_weights(llama)) == 4 * 4096**2
    assert count(mlp_weights(llama, llama.layer_kinds[0])) == 3 * 4096 * 11008
    assert count(layer_weights(llama, llama.layer_kinds[0])) == 4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096


def test_whole_on_one_rank() -> None:
    for name in ("llama-3-8b", "gpt2", "mixtral-8x7b", "deepseek-v3", "opt-350m", "gpt-oss-20b"):
        spec = model(name)
        for kind in spec.layer_kinds:
            weights = layer_weights(spec, kind)
            assert local_parameters(spec, weights, tensor_parallel=1) == count(weights)


def test_scalar_equals_vector() -> None:
    spec = model("llama-3-8b")
    weights = layer_weights(spec, spec.layer_kinds[0])
    degrees = np.array([1, 2, 4, 8, 16])
    vector = np.asarray(local_parameters(spec, weights, tensor_parallel=degrees))
    assert vector.tolist() == [local_parameters(spec, weights, tensor_parallel=int(n)) for n in degrees]
    assert (np.diff(vector) < 0).all()


def test_key_value_heads_are_replicated_beyond_their_number() -> None:
    falcon = model("falcon-7b")
    keys = [w for w in attention_weights(falcon) if w.split is Split.KEY_VALUE]
    assert local_parameters(falcon, keys, tensor_parallel=8) == count(keys)


def test_row_biases_are_whole_and_column_biases_are_sharded() -> None:
    gpt2 = model("gpt2-medium")
    output = [w for w in attention_weights(gpt2) if w.name == "o_proj"]
    query = [w for w in attention_weights(gpt2) if w.name == "q_proj"]
    assert local_parameters(gpt2, output, tensor_parallel=4) == 1024 * 1024 / 4 + 1024
    assert local_parameters(gpt2, query, tensor_parallel=4) == (1024 * 1024 + 1024) / 4


def test_experts_are_divided_over_expert_ranks() -> None:
    mixtral = model("mixtral-8x7b")
    experts = [w for w in mlp_weights(mixtral, mixtral.layer_kinds[0]) if w.split is Split.EXPERT]
    whole = count(experts)
    assert local_parameters(mixtral, experts, tensor_parallel=8, expert_parallel=4) == whole / 4
    sharded = local_parameters(mixtral, experts, tensor_parallel=8, expert_parallel=4, expert_tensor_parallel=2)
    assert sharded == whole / 8


@pytest.mark.parametrize(("tensor_parallel", "rows"), [(1, 50304), (2, 50432), (8, 51200)])
def test_vocabulary_is_padded_to_a_multiple(tensor_parallel: int, rows: int) -> None:
    assert padded_vocabulary(model("gpt2"), tensor_parallel) == rows


def test_tied_head_holds_no_matrix() -> None:
    names = {weight.name for weight in head_weights(model("gpt2"))}
    assert "lm_head" not in names
    untied = {weight.name for weight in head_weights(model("llama-2-7b"))}
    assert "lm_head" in untied


def test_opt_350m_projects_in_and_out() -> None:
    opt = model("opt-350m")
    assert {"project_in", "embed_positions"} <= {w.name for w in embedding_weights(opt)}
    assert [w.name for w in head_weights(opt)] == ["project_out"]


def test_active_is_total_without_experts() -> None:
    assert active_parameters(model("llama-2-7b")) == total_parameters(model("llama-2-7b"))


def test_norms_without_weight_count_nothing() -> None:
    spec = ModelSpec(
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=4,
        intermediate_size=16,
        vocab_size=32,
        norm_affine=False,
    )
    assert count(layer_weights(spec, LayerKind())) == 4 * 64 + 3 * 128
