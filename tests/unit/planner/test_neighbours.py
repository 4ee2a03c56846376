"""Neighbours change one choice and keep the batch, the devices and the layers."""

from typing import Any

import pytest

from planner.neighbours import neighbours, recompute_text
from tests.unit.planner.plans import configuration, pipeline

STAGE = {"layers": 32, "recompute": {"none": 20, "full": 12}, "optimizer_layers_offloaded": 32}
CASES: dict[str, Any] = {
    "data": configuration(),
    "offload": configuration(zero_stage=3, parameter_offload=True, stages=[STAGE]),
    "tensor": configuration(tensor_parallel=4, data_parallel=2, gradient_accumulation_steps=32, sequence_parallel=True),
    "pipeline": pipeline(4),
    "interleaved": pipeline(4, virtual_pipeline_stages=2),
    "experts": configuration(expert_parallel=4),
    "compressed": configuration(gradient_compression="int8"),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_what_is_fixed_stays_fixed(name: str) -> None:
    c = CASES[name]
    found = list(neighbours(c))
    assert found
    for neighbour in found:
        other = neighbour.configuration
        assert other.global_batch_size == c.global_batch_size
        assert other.world_size == c.world_size
        assert sum(stage.layers for stage in other.stages) == 32
        assert other != c
        assert neighbour.chosen != neighbour.instead


@pytest.mark.parametrize(
    ("name", "subject", "instead"),
    [
        ("data", "zero_stage", {"1", "3"}),
        ("data", "micro_batch_size", {"1", "4"}),
        ("data", "tensor_parallel", {"2"}),
        ("tensor", "tensor_parallel", {"2", "8"}),
        ("pipeline", "pipeline_parallel", {"2", "8"}),
        ("experts", "expert_parallel", {"2", "8"}),
        ("offload", "optimizer_offload", {"none"}),
        ("offload", "parameter_offload", {"off"}),
        ("compressed", "gradient_compression", {"none"}),
        ("data", "recompute", {"none", "selective in all 32 layers", "full in all 32 layers"}),
    ],
)
def test_a_choice_has_these_neighbours(name: str, subject: str, instead: set[str]) -> None:
    assert {n.instead for n in neighbours(CASES[name]) if n.subject == subject} == instead


def test_a_degree_that_becomes_one_takes_sequence_parallelism_with_it() -> None:
    c = configuration(tensor_parallel=2, data_parallel=4, gradient_accumulation_steps=16, sequence_parallel=True)
    (plain,) = [n.configuration for n in neighbours(c) if n.subject == "tensor_parallel" and n.instead == "1"]
    assert not plain.sequence_parallel


def test_recomputation_is_told_in_words() -> None:
    assert recompute_text(configuration()) == "full in 12 of 32 layers"
    assert recompute_text(pipeline(4)) == "none"
