from typing import Any

import pytest

from cost_models import catalog
from cost_models.memory.explain import settled
from cost_models.memory.instants import INSTANTS
from cost_models.parameters import total_parameters
from tests.unit.cost_models.memory.cases import SMALL, ledger, term


def full(**more: Any) -> list[dict[str, Any]]:
    return [{"layers": 8, "recompute": {"full": 8, **more}}]


def test_every_phase_has_an_instant() -> None:
    assert {instant.phase for instant in INSTANTS} == {"load", "first_step", "step", "eval", "save"}
    assert list(ledger().phase_of) == [instant.name for instant in INSTANTS]


def test_the_peak_is_the_largest_instant_of_any_stage() -> None:
    named = ledger(backend="megatron", pipeline_parallel=2, stages=[{"layers": 4, "recompute": {"none": 4}}] * 2)
    sizes = {(s.stage, i): s.allocated(i) for s in named.stages for i in s.instants}
    assert named.allocated_bytes == max(sizes.values())
    assert sizes[named.binding] == named.allocated_bytes


def test_gradients_are_absent_at_a_lone_loss_and_there_when_accumulating() -> None:
    assert term(ledger(backend="ddp"), "loss", "gradients") == 0
    later = ledger(backend="ddp", gradient_accumulation_steps=2)
    assert term(later, "loss", "gradients") == pytest.approx(4 * total_parameters(SMALL))
    assert term(ledger(backend="megatron"), "loss", "gradients") > 0  # main gradients are buffers


def test_the_eager_loss_keeps_twelve_bytes_a_logit_and_two_more_when_outputs_are_kept() -> None:
    tokens, vocabulary = 1024, 32768
    facts = catalog.framework("deepspeed")
    assert term(ledger(), "loss", "logits") == 12 * vocabulary * tokens
    kept = facts.model_copy(update={"kept_outputs": True})
    assert term(ledger(facts=kept), "loss", "logits") == 14 * vocabulary * tokens
    assert term(ledger(cross_entropy="fused"), "loss", "logits") == 4 * vocabulary * tokens


def test_megatron_splits_its_logits_over_tensor_parallel_ranks() -> None:
    assert (
        term(ledger(backend="megatron", tensor_parallel=4, cross_entropy="vocab_parallel"), "loss", "logits")
        == 6 * 32768 * 1024 / 4
    )


def test_full_recompute_keeps_one_boundary_a_layer_or_every_k_layers() -> None:
    one = ledger(stages=full())
    assert term(one, "loss", "recompute_boundary") == 8 * 2 * 1024 * 1024
    three = ledger(stages=full(interval=4))
    assert term(three, "loss", "recompute_boundary") == 2 * 2 * 1024 * 1024
    again = [term(named, "backward_last_layer", "recompute_working_set") for named in (one, three)]
    assert again[1] == pytest.approx(4 * again[0])


def test_stages_hold_fewer_micro_batches_towards_the_end() -> None:
    quarters = [{"layers": 2, "recompute": {"none": 2}}] * 4
    named = ledger(backend="megatron", pipeline_parallel=4, stages=quarters, gradient_accumulation_steps=8)
    held = [term(named, "loss", "attention_activations", stage) for stage in range(4)]
    assert held == pytest.approx([4 * held[3], 3 * held[3], 2 * held[3], held[3]])


def test_interleaving_holds_more() -> None:
    halves = [{"layers": 4, "recompute": {"none": 4}}] * 2
    common: dict[str, Any] = {
        "backend": "megatron",
        "pipeline_parallel": 2,
        "stages": halves,
        "gradient_accumulation_steps": 8,
    }
    plain, interleaved = (ledger(virtual_pipeline_stages=v, **common) for v in (1, 2))
    one, two = (term(named, "loss", "attention_activations") for named in (plain, interleaved))
    assert two / one == pytest.approx(2.5 / 2)  # (2 (2 - 1) + (2 - 1) 2 + 1) / 2 micro-batches against 2


def test_sequence_parallel_divides_the_norms_too() -> None:
    common: dict[str, Any] = {"backend": "megatron", "tensor_parallel": 4, "attention": "flash"}
    without = term(ledger(**common), "loss", "activations")
    with_it = term(ledger(sequence_parallel=True, **common), "loss", "activations")
    norms = 8 * 8 * 1024 * 1024
    assert without - with_it == pytest.approx(norms * 3 / 4)


def test_fsdp_gathers_the_root_group_and_layers_one_by_one() -> None:
    named = ledger(backend="fsdp", zero_stage=3, data_parallel=8)
    layer = 2 * 1024 * 1024 + 2 * 1024 * 256 + 3 * 1024 * 2816 + 2 * 1024
    root = 2 * 32768 * 1024 + 1024
    assert term(named, "loss", "live_parameters") == 2 * (root + layer)
    kept = ledger(backend="fsdp", zero_stage=2, data_parallel=8)
    assert term(kept, "loss", "live_parameters") == 2 * (root + 8 * layer)


def test_deepspeed_keeps_gathered_weights_up_to_its_budget() -> None:
    model = catalog.model("llama-2-7b")
    stages = [{"layers": 32, "recompute": {"none": 32}}]
    named = ledger(model, zero_stage=3, data_parallel=8, stages=stages)
    assert term(named, "loss", "live_parameters") == pytest.approx(2 * 1e9, rel=0.001)  # and the small tensors
    assert term(named, "loss", "buckets") == term(named, "load", "buckets") == 2 * 5e8
    assert term(named, "optimizer_step", "live_parameters") < 2e6


@pytest.mark.parametrize("zero_stage", [1, 2])
def test_deepspeed_holds_its_buckets_while_gradients_are_reduced(zero_stage: int) -> None:
    named = ledger(zero_stage=zero_stage, data_parallel=8)
    held = {instant for instant in named.phase_of if term(named, instant, "buckets")}
    assert held == {"backward_last_layer", "backward_first_layer", "end_of_backward"}
    without = ledger(zero_stage=zero_stage, data_parallel=8, communication_overlap=False)
    whole = term(named, "end_of_backward", "buckets")
    assert whole == 2 * term(without, "end_of_backward", "buckets") == 2 * 2 * total_parameters(SMALL)


def test_deepspeeds_gradient_partition_exists_throughout_where_weights_are_sharded() -> None:
    sharded, kept = (ledger(zero_stage=z, data_parallel=8) for z in (3, 2))
    assert term(sharded, "load", "gradients") == term(sharded, "loss", "gradients") > 0
    assert term(kept, "loss", "gradients") == 0


def test_deepspeed_flattens_its_gradient_shard_while_the_buckets_exist() -> None:
    named = ledger(zero_stage=2, data_parallel=8)
    at_the_end = term(named, "end_of_backward", "gradients")
    assert at_the_end == pytest.approx(2 * term(named, "optimizer_step", "gradients"))
    others = [ledger(zero_stage=z, data_parallel=8) for z in (1, 3)]
    assert all(term(n, "end_of_backward", "gradients") == term(n, "optimizer_step", "gradients") for n in others)


def test_deepspeeds_accumulation_adds_a_shard_under_zero_2_and_keeps_the_buckets_under_zero_1() -> None:
    both: list[dict[str, Any]]
    both = [{"zero_stage": z, "data_parallel": 8, "gradient_accumulation_steps": 2} for z in (1, 2)]
    one, two = both
    shard = term(ledger(**two), "optimizer_step", "gradients")
    assert 1.5 * shard < term(ledger(**two), "backward_first_layer", "gradients") < 2 * shard, "no embedding's yet"
    assert term(ledger(**two), "end_of_backward", "gradients") == pytest.approx(3 * shard)
    assert term(ledger(**two), "loss", "buckets") == 0
    assert term(ledger(**one), "loss", "buckets") == term(ledger(**one), "end_of_backward", "buckets") > 0


def test_buckets_are_no_larger_than_what_adapters_train() -> None:
    adapted = ledger(zero_stage=2, data_parallel=8, training={"method": "lora"})
    full = ledger(zero_stage=2, data_parallel=8)
    assert 0 < term(adapted, "end_of_backward", "buckets") < term(full, "end_of_backward", "buckets") / 10


def test_evaluation_is_priced_at_its_own_length_and_batch() -> None:
    short = term(ledger(), "evaluation", "logits")
    long = term(ledger(training={"eval_sequence_length": 8192, "eval_batch_size": 4}), "evaluation", "logits")
    assert long == 8 * 4 * short


def test_materialised_attention_adds_its_scores_to_the_working_set() -> None:
    flash, eager = (ledger(attention=a, stages=full()) for a in ("flash", "eager"))
    assert term(flash, "backward_last_layer", "attention_working_set") == 0
    maps = 16 * 1024 * 1024
    assert term(eager, "backward_last_layer", "attention_working_set") == 8 * maps  # 4 + 4 + 2 less the 16-bit copy


def test_a_padding_mask_costs_a_square_map_a_layer_under_sdpa() -> None:
    plain, padded = (ledger(attention="sdpa", training={"padded": p}) for p in (False, True))
    more = term(padded, "loss", "attention_activations") - term(plain, "loss", "attention_activations")
    expanded = 2 * 2 * (1024 - 256) * 1024
    assert more == 8 * (2 * 1024 * 1024 + expanded)  # with a mask, grouped keys and values are repeated


def test_expert_imbalance_scales_what_the_fullest_rank_holds() -> None:
    model = catalog.model("mixtral-8x7b")
    stages = [{"layers": 32, "recompute": {"none": 32}}]
    even, uneven = (
        ledger(
            model,
            backend="megatron",
            expert_parallel=8,
            data_parallel=8,
            stages=stages,
            training={"expert_imbalance": i},
        )
        for i in (1.0, 1.5)
    )
    assert term(uneven, "loss", "expert_activations") == pytest.approx(1.5 * term(even, "loss", "expert_activations"))
    assert term(even, "loss", "routing") == 32 * 8 * 8 * 1024


def test_activation_offload_leaves_two_boundaries_on_the_device() -> None:
    kept, moved = (ledger(stages=full(), activation_offload=a) for a in (False, True))
    assert term(moved, "loss", "recompute_boundary") == 0
    assert term(moved, "backward_last_layer", "recompute_boundary") == 2 * 2 * 1024 * 1024
    assert moved.stages[0].host_bytes > kept.stages[0].host_bytes


def test_a_layers_casts_live_until_its_own_backward_whether_it_is_the_first_or_the_last() -> None:
    named = ledger(backend="ddp", precision="bf16")
    loss, last, first = (
        term(named, instant, "weight_casts") for instant in ("loss", "backward_last_layer", "backward_first_layer")
    )
    layers = loss - 2 * SMALL.vocab_size * SMALL.hidden_size
    assert last - first == layers * 7 / 8  # the other seven have gone
    assert first > 0


def test_what_backward_has_freed_is_taken_from_what_forward_saved() -> None:
    terms = {"weights": 9.0, "activations": 2.0, "attention_activations": 3.0, "backward_working_set": -4.0}
    assert settled(terms) == {
        "weights": 9.0, "activations": 0.0, "attention_activations": 1.0, "backward_working_set": 0.0
    }  # fmt: skip
    assert settled({"weights": 1.0}) == {"weights": 1.0}
