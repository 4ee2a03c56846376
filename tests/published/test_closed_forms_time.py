"""Closed formulas that papers print for communication and the pipeline, exact where their assumptions hold."""

from typing import Any

import pytest

from cost_models.parameters import total_parameters
from cost_models.time.collectives import group
from tests.unit.cost_models.time.cases import GPT, frame, job, ledger

SLOW, FAST = "100GB/s", "400GB/s"
SEQUENCE = 2048


def volume(term: str, ranks: int, **changes: Any) -> float:
    """Bytes that cross a device's link in a step: what a faster link saves, over what it saves of a byte. [bytes]"""
    seconds, per_byte = [], []
    for rate in (SLOW, FAST):
        of = job(intra_node_link={"name": "stated", "bandwidth": rate})
        found = ledger(of, communication_overlap=False, **changes)
        seconds.append(found.exposed[term] + found.hidden.get(term, 0.0))
        per_byte.append(1 / float(group(frame(of), ranks, 1).link_rate))
    return (seconds[0] - seconds[1]) / (per_byte[0] - per_byte[1])


@pytest.mark.parametrize("tensor", [2, 4, 8])
@pytest.mark.parametrize("micro", [1, 4])
def test_tensor_parallelism_moves_what_narayanan_count(tensor: int, micro: int) -> None:
    # arXiv:2104.04473, section 3.2: 8 b s h (t - 1) / t elements a layer and micro-batch, forward and backward
    # together; the embedding's and the head's reduction, a quarter of that each, are beside it. In a back end that
    # waits for them: beside compute they would slow it down, and more seconds would count than bytes.
    of = {"backend": "megatron-deepspeed", "tensor_parallel": tensor}
    found = volume("tensor_parallel", tensor, micro_batch_size=micro, **of)
    width = micro * SEQUENCE * GPT.hidden_size * (tensor - 1) / tensor
    assert found == pytest.approx(2 * width * (8 * GPT.num_hidden_layers + 4), rel=1e-6)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_sharding_moves_two_or_three_parameters_a_parameter(stage: int) -> None:
    # ZeRO, arXiv:1910.02054, section 7: an all-reduce is 2 Psi and so are ZeRO-1 and ZeRO-2, ZeRO-3 is 3 Psi,
    # times (n - 1) / n of a ring.
    found = volume("data_parallel", 8, backend="deepspeed", data_parallel=8, zero_stage=stage)
    psi = total_parameters(job().model) * 2 * 7 / 8
    assert found == pytest.approx((3 if stage == 3 else 2) * psi, rel=1e-6)


@pytest.mark.parametrize(("stages", "micro_batches", "virtual"), [(4, 16, 1), (8, 32, 2), (8, 8, 4)])
def test_the_bubble_is_narayanans(stages: int, micro_batches: int, virtual: int) -> None:
    # arXiv:2104.04473, section 2.2: (p - 1) (t_f + t_b) / v. With stages that differ, what the others take once.
    found = ledger(job(nodes=stages), tensor_parallel=8, pipeline_parallel=stages, virtual_pipeline_stages=virtual,
               gradient_accumulation_steps=micro_batches)  # fmt: skip
    slowest = max(found.stage_seconds)
    expected = (sum(found.stage_seconds) - slowest) / virtual
    assert found.exposed["pipeline_bubble"] == pytest.approx(expected, rel=1e-6)


def test_recompute_repeats_a_forward_that_is_a_third_of_the_products() -> None:
    # arXiv:2205.05198, section 5: full recomputation adds a forward pass, of the products a third of forward and
    # backward together; the head's are not repeated. Attention and element-wise forwards, less than half of theirs,
    # come on top.
    plain, full = (ledger(job(), tensor_parallel=8, mode=mode) for mode in ("none", "full"))
    layers = 12 * GPT.num_hidden_layers * GPT.hidden_size**2
    share = layers / (layers + GPT.vocab_size * GPT.hidden_size) / 3
    least = share * plain.exposed["compute"]
    assert plain.exposed["recompute"] == 0
    rest = plain.exposed["attention"] + plain.exposed["elementwise"]
    assert least + 0.2 * rest < full.exposed["recompute"] < least + 0.5 * rest
