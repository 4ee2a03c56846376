"""What tensor-parallel ranks exchange in a backward, and what of it runs beside matrix products."""

from typing import Any

import pytest

from cost_models.specs.training import LoraSpec
from cost_models.time.frame import Frame
from cost_models.time.layer import layer_work, passes
from cost_models.time.tensor_parallel import backward_seconds, reduction_seconds
from tests.unit.cost_models.time.cases import GPT, frame, job

KIND = GPT.layer_kinds[0]


def sent(of: Frame) -> float:
    """Seconds of all that a backward sends, over those of the two reductions of a forward."""
    exposed, hidden = backward_seconds(of, KIND)
    return float((exposed + (1 - of.factor("overlap_contention")) * hidden) / reduction_seconds(of, 2.0))


@pytest.mark.parametrize(
    ("backend", "split", "expected"),
    [("megatron", False, 1.0), ("megatron", True, 1.5), ("megatron-deepspeed", False, 1.0),
     ("megatron-deepspeed", True, 1.5), ("fsdp", False, 1.0), ("fsdp", True, 1.0)],
)  # fmt: skip
def test_the_input_of_a_block_is_gathered_again(backend: str, split: bool, expected: float) -> None:
    """By Megatron's sequence parallelism, which keeps a part of it only."""
    f = frame(job(), backend=backend, tensor_parallel=8, sequence_parallel=split)
    assert sent(f) == pytest.approx(expected)


@pytest.mark.parametrize("backend", ["megatron-deepspeed", "fsdp"])
def test_who_waits_hides_nothing(backend: str) -> None:
    assert backward_seconds(frame(job(), backend=backend, tensor_parallel=8), KIND)[1] == 0


def test_no_more_hides_than_the_products_last() -> None:
    """On a slow bridge two products of the column-split matrices cover, and no more; without splitting one."""
    hidden = {}
    for split in (False, True):
        f = frame(job("a100-pcie-80gb"), tensor_parallel=8, sequence_parallel=split)
        hidden[split] = float(backward_seconds(f, KIND)[1])
    assert hidden[True] == pytest.approx(7 / 12 * float(passes(f, KIND)[1].compute))  # 3 h^2 and 4 h^2 of 12 h^2
    assert hidden[True] == pytest.approx(2 * hidden[False])


def test_a_fast_link_leaves_the_gradients_gather_and_contention() -> None:
    link = {"name": "fast", "bandwidth": "4TB/s"}
    f = frame(job(intra_node_link=link), tensor_parallel=8, sequence_parallel=True)
    reduced = reduction_seconds(f, 2.0)
    exposed, hidden = backward_seconds(f, KIND)
    assert hidden == pytest.approx(float(reduced))
    assert exposed == pytest.approx(float(reduced * (0.5 + f.factor("overlap_contention"))))


def test_frozen_matrices_have_no_product_for_weights_to_hide_behind() -> None:
    of = job("a100-pcie-80gb", method="lora", lora=LoraSpec())
    assert backward_seconds(frame(of, tensor_parallel=8), KIND)[1] == 0
    assert backward_seconds(frame(of, tensor_parallel=8, sequence_parallel=True), KIND)[1] > 0


def test_selective_recompute_gathers_again_where_it_keeps_scattered_results() -> None:
    """torchtitan does; Megatron repeats the attention core, inside of which nothing is exchanged."""

    def more(**changes: Any) -> float:
        f = frame(job(), tensor_parallel=8, **changes)
        selective, none = (layer_work(f, KIND, mode).exposed["tensor_parallel"] for mode in ("selective", "none"))
        return float((selective - none) / reduction_seconds(f, 2.0))

    assert more(backend="fsdp", sequence_parallel=True) == pytest.approx(0.5)
    assert more(backend="fsdp") == 0
    assert more(backend="megatron", sequence_parallel=True) == 0
