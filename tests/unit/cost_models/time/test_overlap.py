"""What slow links cost: communication hides behind compute that exists, and the rest waits."""

from itertools import product

import pytest

from cost_models.job import Job
from cost_models.specs.model import LayerKind, MoeSpec
from cost_models.time.data_parallel import Cover, reduce_bytes, step_seconds, traffic
from cost_models.time.layer import layer_cover, layer_parameters, layer_work
from cost_models.time.moe import distinct_nodes
from cost_models.time.pipeline import boundary_seconds, wire_seconds
from cost_models.time.stage import layer_tail
from tests.unit.cost_models.time.cases import GPT, frame, job, ledger

COMPUTE = ("compute", "attention", "elementwise", "launch_floor", "recompute")
KIND = GPT.layer_kinds[0]


def slow(gigabits: float, nodes: int = 4, **changes: object) -> Job:
    """GPT on nodes joined by a network of that rate for each device."""
    link = {"name": "slow", "bandwidth": f"{gigabits}Gb/s"}
    return job(nodes=nodes, inter_node_link=link, **changes)  # type: ignore[arg-type]


def test_a_reduction_hides_behind_one_backward_only() -> None:
    """However many micro-batches a step has: gradients are complete in the last."""
    of = slow(1)
    for m in (1, 16):
        found = ledger(of, backend="ddp", data_parallel=32, gradient_accumulation_steps=m)
        one = sum(found.exposed[name] for name in COMPUTE) / m
        assert found.hidden["data_parallel"] <= one
        assert found.step_seconds > 10 * one


def test_what_no_compute_covers_is_exposed() -> None:
    """max(share c, c - f), at both ends of it."""
    f = frame(slow(1), backend="ddp", data_parallel=32)
    parameters = layer_parameters(f, KIND)
    whole = 2 * float(traffic(f, parameters, parameters).reduce)
    share = float(f.by_backend("data_parallel_exposed"))
    for cover, expected in ((0.0, whole), (0.1 * whole, 0.9 * whole), (10 * whole, share * whole)):
        exposed, hidden = step_seconds(f, parameters, parameters, Cover(forward=1e9, backward=cover))
        assert exposed == pytest.approx(expected)
        assert hidden == pytest.approx(whole - expected)


def test_on_a_processor_nothing_hides() -> None:
    """The cores that compute move the bytes."""
    for backend, stage in (("ddp", 0), ("deepspeed", 1), ("fsdp", 2), ("fsdp", 3)):
        found = ledger(job(device="cpu"), backend=backend, data_parallel=8, zero_stage=stage, precision="fp32")
        assert found.exposed["data_parallel"] > 0
        assert sum(found.hidden.values()) == 0


def test_gathered_parameters_hide_behind_the_next_forward() -> None:
    """ZeRO-1 reduces beside the backward and gathers beside the forward."""
    f = frame(slow(1), data_parallel=32, zero_stage=1)
    cover, tail = layer_cover(f, KIND), layer_tail(f, KIND)
    assert tail.hidden["data_parallel"] == pytest.approx(float(cover.forward + cover.backward))


def test_without_a_micro_batch_left_over_streams_nothing_hides_twice() -> None:
    """ZeRO-2 of FSDP reduces in every micro-batch: the end of the step has nothing left."""
    f = frame(slow(1), backend="fsdp", data_parallel=32, zero_stage=2)
    assert float(layer_work(f, KIND, "none").hidden["data_parallel"]) > 0
    assert float(layer_tail(f, KIND).hidden["data_parallel"]) == 0


@pytest.mark.parametrize("gigabits", [0.1, 1, 10])
def test_virtual_stages_pay_for_every_boundary(gigabits: float) -> None:
    """m micro-batches cross v boundaries a direction, whatever hides."""
    of = slow(gigabits)
    steps = []
    for v in (1, 2, 4, 8):
        args = {"data_parallel": 8, "pipeline_parallel": 4, "virtual_pipeline_stages": v,
                "gradient_accumulation_steps": 8}  # fmt: skip
        found, wire = ledger(of, **args), float(wire_seconds(frame(of, **args)))
        transfer = 2048 * 4096 * 2 / (gigabits * 1e9 / 8)
        assert wire >= v * transfer
        assert found.step_seconds >= 8 * wire
        steps.append(found.step_seconds)
    if gigabits < 10:
        assert steps == sorted(steps)
    assert steps[3] > steps[2]


def test_a_fast_network_still_rewards_virtual_stages() -> None:
    """The smaller bubble outweighs the transfers where they are quick."""

    def step(v: int) -> float:
        return ledger(job(nodes=4), data_parallel=8, pipeline_parallel=4, virtual_pipeline_stages=v,
                      gradient_accumulation_steps=8).step_seconds  # fmt: skip

    assert step(4) < step(2) < step(1)


def test_split_sequences_send_a_part_each() -> None:
    """A rank of eight sends an eighth with sequence parallelism; Megatron-DeepSpeed's ranks always do."""
    args = {"tensor_parallel": 8, "pipeline_parallel": 4}
    whole = wire_seconds(frame(slow(1), **args))
    for change in ({"sequence_parallel": True}, {"backend": "megatron-deepspeed"}):
        assert wire_seconds(frame(slow(1), **args, **change)) == pytest.approx(whole / 8, rel=1e-3)


def test_recompute_covers_no_boundary_twice() -> None:
    """Exposed and hidden transfers add up to the wire's time where it binds."""
    f = frame(slow(1), data_parallel=8, pipeline_parallel=4, virtual_pipeline_stages=4)
    exposed, hidden = boundary_seconds(f)
    assert exposed + hidden == pytest.approx(wire_seconds(f))


def test_tokens_sent_to_experts_hide_behind_the_layer() -> None:
    """An all-to-all over a slow network waits for what the layer does not cover."""
    moe = MoeSpec(num_experts=32, num_experts_per_tok=2, moe_intermediate_size=512)
    of = slow(1, model=GPT.model_copy(update={"moe": moe, "layers": (LayerKind(mlp="moe"),) * 32}))
    found = ledger(of, expert_parallel=32, data_parallel=32, zero_stage=1, expert_overlap=True)
    assert found.hidden["expert_parallel"] <= sum(found.exposed[name] for name in COMPUTE)
    assert found.exposed["expert_parallel"] > found.hidden["expert_parallel"]


def test_a_token_crosses_once_to_each_node() -> None:
    """Expected distinct nodes of k experts drawn over K nodes, over k, against all draws counted."""
    for nodes, k in ((1, 4), (2, 3), (3, 4)):
        draws = list(product(range(nodes), repeat=k))
        counted = sum(len(set(draw)) for draw in draws) / len(draws) / k
        assert float(distinct_nodes(float(nodes), k)) == pytest.approx(counted)


def test_experts_exchange_in_the_open_unless_another_micro_batch_runs_beside_them() -> None:
    """Overlap hides all but a share of the exchange, and cuts a layer into parts that cost launches."""
    moe = MoeSpec(num_experts=32, num_experts_per_tok=2, moe_intermediate_size=4096)
    of = job(model=GPT.model_copy(update={"moe": moe, "layers": (LayerKind(mlp="moe"),) * 32}))
    args = {"data_parallel": 8, "expert_parallel": 8, "zero_stage": 1, "micro_batch_size": 8}
    open_, beside = ledger(of, **args), ledger(of, **args, expert_overlap=True)
    assert open_.hidden["expert_parallel"] == 0
    assert beside.exposed["expert_parallel"] < 0.5 * open_.exposed["expert_parallel"]
    assert beside.exposed["expert_parallel"] + beside.hidden["expert_parallel"] == pytest.approx(
        open_.exposed["expert_parallel"]
    )
    short = {**args, "micro_batch_size": 1}
    small = job(model=of.model, sequence_length=128)
    assert ledger(small, **short, expert_overlap=True).step_seconds > ledger(small, **short).step_seconds


def test_gradients_travel_in_the_width_that_the_framework_states() -> None:
    """FSDP2 reduces fp32, half as much when asked for bf16; DeepSpeed reduces 16 bits."""
    of = slow(1)
    widths = {
        (backend, compression): float(
            reduce_bytes(frame(of, backend=backend, data_parallel=32, zero_stage=2, gradient_compression=compression))
        )
        for backend, compression in (("fsdp", "none"), ("fsdp", "bf16"), ("deepspeed", "none"))
    }
    assert widths == {("fsdp", "none"): 4, ("fsdp", "bf16"): 2, ("deepspeed", "none"): 2}
