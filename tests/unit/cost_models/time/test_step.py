"""Terms of a step that are easily got wrong."""

import numpy as np
import pytest

from cost_models.calibration import Calibration
from cost_models.catalog import calibration
from cost_models.errors import BrokenRule, MissingCalibration
from cost_models.parameters import embedding_weights, head_weights, layer_weights
from cost_models.specs.configuration import RecomputeCounts, Stage
from cost_models.specs.model import LayerKind, MoeSpec
from cost_models.specs.training import LoraSpec
from cost_models.time import time_ledger
from cost_models.time.attention import attended_tokens, softmax_fallback
from cost_models.time.data_parallel import Local, gather_bytes, local
from cost_models.time.flops import model_flops
from cost_models.time.launch import pass_seconds
from cost_models.time.optimizer import accumulation_seconds
from tests.unit.cost_models.time.cases import GPT, configuration, frame, job, ledger


@pytest.mark.parametrize(
    ("stages", "micro_batches", "virtual"), [(2, 8, 1), (4, 16, 1), (8, 8, 1), (4, 16, 2), (8, 32, 4)]
)
def test_bubble_of_even_stages(stages: int, micro_batches: int, virtual: int) -> None:
    """(p-1)/m of the ideal time, divided by v: arXiv:2104.04473 sections 2.2.1 and 2.2.2."""
    model = GPT.model_copy(update={"vocab_size": 1, "num_hidden_layers": 32})
    of = job(nodes=stages, model=model)
    found = ledger(of, tensor_parallel=8, pipeline_parallel=stages, virtual_pipeline_stages=virtual,
               gradient_accumulation_steps=micro_batches)  # fmt: skip
    ideal = micro_batches * max(found.stage_seconds)
    # A vocabulary of one row leaves only the embedding look-up and its reduction to tell the stages apart.
    assert found.exposed["pipeline_bubble"] / ideal == pytest.approx((stages - 1) / (micro_batches * virtual), rel=0.1)


def test_the_head_slows_the_last_stage() -> None:
    """Its three vocabulary products make the last of even stages the slowest."""
    found = ledger(job(nodes=4), tensor_parallel=8, pipeline_parallel=4, gradient_accumulation_steps=8)
    assert found.stage_seconds[3] == max(found.stage_seconds)
    assert found.stage_seconds[3] > 1.03 * found.stage_seconds[1]


def test_full_recompute_repeats_the_tensor_parallel_reductions() -> None:
    """Two all-reduces forward, two backward, two more in the repeated forward; all of them wait in this back end."""
    of = {"backend": "megatron-deepspeed", "tensor_parallel": 8}
    plain = ledger(job(), **of).exposed["tensor_parallel"]
    again = ledger(job(), mode="full", **of).exposed["tensor_parallel"]
    # The embedding's and the head's reduction are not repeated: two of 130.
    assert again / plain == pytest.approx((32 * 6 + 2) / (32 * 4 + 2), rel=1e-9)


def test_sequence_parallelism_splits_what_is_between_the_blocks() -> None:
    """arXiv:2205.05198 section 4.2.2."""
    with_it = ledger(job(), tensor_parallel=8, sequence_parallel=True)
    without = ledger(job(), tensor_parallel=8)
    assert with_it.exposed["elementwise"] < without.exposed["elementwise"]


def test_small_micro_batches_pay_more_often_for_adding_gradients() -> None:
    """Traffic by parameter and micro-batch, whatever the tokens."""
    f = frame(job(), data_parallel=8)
    added = accumulation_seconds(f, Local(dense=1e9, experts=0.0))
    assert added == pytest.approx(f.factor("accumulation_bytes_per_parameter", "megatron") * 1e9 / f.hbm)
    steps = [ledger(job(), data_parallel=8, micro_batch_size=b, gradient_accumulation_steps=8 // b) for b in (1, 2, 8)]
    streamed = [step.exposed["elementwise"] for step in steps]
    weights = [weight for kind in GPT.layer_sequence for weight in layer_weights(GPT, kind)]
    weights += [*embedding_weights(GPT), *head_weights(GPT)]
    once = accumulation_seconds(f, local(f, weights))
    assert streamed[0] - streamed[1] == pytest.approx(4 * once)
    assert streamed[1] - streamed[2] == pytest.approx(3 * once)


def test_sharded_parameters_are_gathered_per_micro_batch_but_not_under_a_pipeline() -> None:
    """ZeRO-3 pays for every micro-batch; with pipeline stages once a step."""

    def paid(m: int, p: int) -> float:
        found = ledger(job(nodes=4), backend="megatron", data_parallel=8, pipeline_parallel=p, zero_stage=3,
                   gradient_accumulation_steps=m)  # fmt: skip
        return found.exposed["data_parallel"] + found.hidden["data_parallel"]

    assert paid(8, 1) > 6 * paid(1, 1)
    assert paid(8, 4) == pytest.approx(paid(1, 4))


def test_overlap_hides_communication_but_does_not_lose_it() -> None:
    """Without overlap everything is exposed; with it some is hidden and the step is shorter."""
    on = ledger(job(nodes=2), backend="fsdp", data_parallel=16, zero_stage=3)
    off = ledger(job(nodes=2), backend="fsdp", data_parallel=16, zero_stage=3, communication_overlap=False)
    assert on.hidden["data_parallel"] > 0
    assert off.hidden["data_parallel"] == 0
    assert on.step_seconds < off.step_seconds


@pytest.mark.parametrize(("micro", "tensor", "fallback"), [(1, 8, False), (1, 32, True), (4, 32, False), (2, 32, True)])
def test_fused_softmax_needs_batches_of_heads_by_four(micro: int, tensor: int, fallback: bool) -> None:
    """Megatron-LM `is_kernel_available`: (micro-batch x heads / tp) % 4 == 0."""
    f = frame(job(), backend="megatron-deepspeed", micro_batch_size=micro, tensor_parallel=tensor, attention="eager")
    assert bool(softmax_fallback(f)) is fallback


def test_long_sequences_fall_back_too() -> None:
    """The 2021 kernel ends at 2048 tokens."""
    assert softmax_fallback(frame(job(sequence_length=4096), backend="megatron-deepspeed", attention="eager"))


def test_a_window_bounds_what_a_query_sees() -> None:
    """Half the sequence without a window; the band less its missing corner with one."""
    assert attended_tokens(8192, None) == 4096
    assert attended_tokens(8192, 8192) == 4096
    assert attended_tokens(8192, 1024) == 1024 - 1024**2 / (2 * 8192)
    brute = np.mean([min(i + 1, 64) for i in range(512)])
    assert attended_tokens(512, 64) == pytest.approx(brute, rel=0.01)


def test_model_flops_of_a_gpt() -> None:
    """72 B s l h^2 (1 + s/6h + V/12lh): arXiv:2104.04473 equation 3 without its recomputed forward."""
    of, batch = job(), 64
    s, h, layers, v = 2048, 4096, 32, 51200
    closed = 72 * batch * s * layers * h**2 * (1 + s / (6 * h) + v / (12 * layers * h))
    assert model_flops(of, batch) == pytest.approx(closed, rel=1e-12)
    # PaLM, arXiv:2204.02311 appendix B: 6 N + 12 L H Q T per token, N without embeddings but with the head.
    n = 12 * layers * h * h + v * h
    assert model_flops(of, batch) == pytest.approx((6 * n + 12 * layers * h * s) * batch * s, rel=1e-12)


def test_frozen_weights_need_no_weight_gradient() -> None:
    """LoRA does two thirds of the linear work, and little for its adapters."""
    full = ledger(job(), backend="fsdp", data_parallel=8, zero_stage=3)
    lora = ledger(job(method="lora"), backend="fsdp", data_parallel=8, zero_stage=3)
    assert 0.62 < lora.exposed["compute"] / full.exposed["compute"] < 0.80
    assert lora.exposed["optimizer"] < 0.05 * full.exposed["optimizer"]


def test_four_bit_weights_are_expanded_in_every_pass() -> None:
    """QLoRA streams the weights once more than LoRA in each pass."""
    lora = ledger(job(method="lora"), backend="ddp")
    qlora = ledger(job(method="qlora"), backend="ddp")
    assert qlora.exposed["elementwise"] > lora.exposed["elementwise"]


def test_fp8_speeds_up_linear_layers_only() -> None:
    """Attention and head stay 16-bit; casts cost traffic."""
    of = job("h100-sxm-80gb")
    bf16, fp8 = ledger(of), ledger(of, precision="fp8")
    assert fp8.exposed["compute"] < bf16.exposed["compute"]
    assert fp8.exposed["attention"] == bf16.exposed["attention"]
    assert fp8.exposed["elementwise"] > bf16.exposed["elementwise"]


def test_fp8_needs_a_device_that_has_it() -> None:
    """The error names precision and device."""
    with pytest.raises(BrokenRule, match=r"precision fp8.*a100-sxm-80gb"):
        ledger(job(), precision="fp8")


def test_compression_trades_bytes_for_kernels() -> None:
    """It pays on a slow network and costs on one device."""
    slow = job(nodes=8, inter_node_link={"name": "x", "bandwidth": "10Gb/s"})
    args = {"backend": "deepspeed", "data_parallel": 64, "zero_stage": 0}
    none, onebit = ledger(slow, **args), ledger(slow, gradient_compression="one-bit", **args)
    assert onebit.exposed["data_parallel"] < 0.2 * none.exposed["data_parallel"]
    fast = job()
    near = {"backend": "deepspeed", "data_parallel": 2, "zero_stage": 0}
    assert (
        ledger(fast, gradient_compression="one-bit", **near).exposed["data_parallel"]
        > ledger(fast, **near).exposed["data_parallel"] * 0.5
    )


def test_offloading_optimizer_states_costs_time_layer_by_layer() -> None:
    """Linear in the layers whose states live on the host."""
    seconds = [
        ledger(job(), backend="deepspeed", data_parallel=8, zero_stage=3, offloaded=n).exposed["offload"]
        for n in (0, 8, 16)
    ]
    assert seconds[0] == 0
    assert seconds[2] == pytest.approx(2 * seconds[1])


def test_parameter_and_activation_offload_are_priced() -> None:
    """Copies over PCIe appear, exposed or hidden."""
    base = {"backend": "deepspeed", "data_parallel": 8, "zero_stage": 3, "mode": "full"}
    for change in ({"parameter_offload": True}, {"activation_offload": True}):
        found = ledger(job(), **base, **change)
        assert found.exposed["offload"] > 0
        assert found.hidden["offload"] > 0


def test_routed_layers_exchange_tokens() -> None:
    """Expert parallelism adds an all-to-all; across nodes it costs more."""
    moe = MoeSpec(num_experts=16, num_experts_per_tok=2, moe_intermediate_size=2048)
    model = GPT.model_copy(update={"moe": moe, "layers": (LayerKind(mlp="moe"),) * 32})
    near = ledger(job(model=model), expert_parallel=8, data_parallel=8, zero_stage=1)
    far = ledger(job(nodes=2, model=model), expert_parallel=16, data_parallel=16, zero_stage=1)
    alone = ledger(job(model=model), expert_parallel=1, data_parallel=8, zero_stage=1)
    assert alone.exposed["expert_parallel"] == 0
    assert 0 < near.exposed["expert_parallel"] < far.exposed["expert_parallel"]


def test_context_parallelism_divides_tokens_and_passes_keys_around() -> None:
    """Compute falls with the ranks; the ring is mostly hidden on long sequences."""
    of = job(sequence_length=32768)
    one, four = ledger(of), ledger(of, context_parallel=4)
    assert four.exposed["compute"] == pytest.approx(one.exposed["compute"] / 4)
    assert 0 < four.exposed["context_parallel"] < four.hidden["context_parallel"]


def test_uneven_stages_wait_for_the_slowest() -> None:
    """Moving a layer onto one stage lengthens the step by about that layer's share."""
    of = job(nodes=2)

    def step(a: int) -> float:
        sizes = (a, 32 - a)
        stages = tuple(Stage(layers=n, recompute=RecomputeCounts(none=n)) for n in sizes)
        return ledger(
            of, tensor_parallel=8, pipeline_parallel=2, gradient_accumulation_steps=32, stages=stages
        ).step_seconds

    assert step(24) > 1.3 * step(17)


def test_small_models_are_bound_by_the_host() -> None:
    """A tiny layer takes as long as its kernels take to launch; CUDA graphs help."""
    tiny = GPT.model_copy(update={"hidden_size": 512, "intermediate_size": 2048, "head_dim": 16})
    found = ledger(job(model=tiny, sequence_length=512))
    assert found.exposed["launch_floor"] > 0.5 * found.step_seconds
    assert ledger(job(model=tiny, sequence_length=512), cuda_graph=True).step_seconds < found.step_seconds


@pytest.mark.parametrize(
    ("device", "named"), [("gb200", "grace"), ("gb300", "grace"), ("t4", "t4"), ("b200", "default")]
)
def test_the_processors_beside_a_device_set_its_launch_time(device: str, named: str) -> None:
    """All that the host launches scales with its speed."""
    factors = calibration().factors
    f, reference = frame(job(device)), frame(job())
    kind = GPT.layer_sequence[0]
    expected = factors[f"host_launch_factor.{named}"].value * pass_seconds(reference, kind)
    assert pass_seconds(f, kind) == pytest.approx(expected, rel=1e-12)


def test_a_kernel_of_the_device_comes_before_the_framework() -> None:
    """Turing has no FlashAttention-2, whatever framework calls for attention."""
    factors = calibration().factors
    assert (
        frame(job("t4"), backend="ddp").by_device_or_backend("flash_backward_efficiency")
        == factors["flash_backward_efficiency.turing"].value
    )
    for backend in ("ddp", "deepspeed"):
        found = frame(job(), backend=backend).by_device_or_backend("flash_backward_efficiency")
        assert found == factors[f"flash_backward_efficiency.{backend}"].value


@pytest.mark.parametrize(("backend", "precision", "expected"), [
    ("fsdp", "fp8", 1.0), ("fsdp", "bf16", 2.0), ("deepspeed", "bf16", 2.0), ("megatron", "fp8", 2.0),
    ("fsdp", "fp32", 4.0),
])  # fmt: skip
def test_bytes_of_a_gathered_parameter(backend: str, precision: str, expected: float) -> None:
    """FSDP casts shards to fp8 before it gathers them."""
    f = frame(job("h100-sxm-80gb"), backend=backend, precision=precision, zero_stage=3, data_parallel=8)
    assert gather_bytes(f) == expected


def test_layers_must_add_up() -> None:
    """The error names both counts."""
    with pytest.raises(BrokenRule, match="stages hold 16 layers but num_hidden_layers is 32"):
        time_ledger(job(), configuration(layers=16), calibration())


def test_a_missing_constant_is_an_error_not_a_guess() -> None:
    """Without any factor for the device or its vendor the message lists what was tried."""
    rest = {k: f for k, f in calibration().factors.items() if not k.startswith("gemm_efficiency.")}
    with pytest.raises(MissingCalibration, match=r"gemm_efficiency.a100.bf16, .*gemm_efficiency.nvidia.bf16"):
        time_ledger(job(), configuration(), Calibration(version="x", factors=rest))


def test_a_new_device_of_a_known_vendor_falls_back() -> None:
    """A family without factors of its own is priced by its vendor's, and `known` says so."""
    of = job()
    new = of.pool.device.model_copy(update={"name": "x900", "family": "x900"})
    pool = of.pool.model_copy(update={"device": new})
    of = type(of)(model=of.model, training=of.training, cluster=of.cluster.model_copy(update={"pools": (pool,)}))
    assert time_ledger(of, configuration(), calibration()).step_seconds > 0
    assert not calibration().known("gemm_efficiency", "x900.bf16")


def test_narrower_products_are_faster_and_cast_more() -> None:
    """NVFP4 multiplies at three times the rate of fp8 on GB300 and moves more to cast; the head stays 16-bit."""
    of = job("gb300", sequence_length=8192)
    wide, eight, four = (ledger(of, precision=p, micro_batch_size=2) for p in ("bf16", "fp8", "nvfp4"))
    assert four.exposed["compute"] < eight.exposed["compute"] < wide.exposed["compute"]
    assert four.exposed["elementwise"] > eight.exposed["elementwise"] > wide.exposed["elementwise"]
    assert four.exposed["attention"] == eight.exposed["attention"] == wide.exposed["attention"]
    with pytest.raises(BrokenRule, match="precision nvfp4 needs one of fp4 but a100-sxm-80gb has"):
        ledger(job(), precision="nvfp4")


def test_a_four_bit_base_leaves_attention_in_fp32_before_ampere() -> None:
    """A T4 multiplies queries and keys in fp32 then; devices that run FlashAttention cast them first."""
    lora = LoraSpec()

    def attention(device: str, method: str, kernel: str) -> float:
        of = job(device, sequence_length=1024, method=method, lora=lora, precision="fp16")
        found = ledger(of, backend="ddp", attention=kernel, precision="fp16", lora=lora)
        return float(found.exposed["attention"])

    for kernel in ("sdpa", "eager"):
        assert attention("t4", "qlora", kernel) > 1.3 * attention("t4", "lora", kernel)
        assert attention("a100-sxm-80gb", "qlora", kernel) == attention("a100-sxm-80gb", "lora", kernel)
