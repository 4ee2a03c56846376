"""Wishes and domains: pins, lists, ranges, permissions, and what they leave."""

import pytest

from cost_models.errors import BrokenRule, MissingKey, UnknownName
from solver.domains import default_domains, narrowed, offload_requirements, permit_compression, requirement
from solver.problem import Problem, device_counts
from tests.oracle.instances import instance

JOB = instance(0).job


def test_a_value_pins_a_list_restricts_and_a_range_bounds() -> None:
    domains = default_domains(JOB)
    assert narrowed(domains, [requirement("zero_stage", 2)])["zero_stage"] == (2,)
    assert narrowed(domains, [requirement("zero_stage", [1, 3])])["zero_stage"] == (1, 3)
    assert narrowed(domains, [requirement("zero_stage", {"min": 1})])["zero_stage"] == (1, 2, 3)
    assert narrowed(domains, [requirement("tensor_parallel", [1, 3])])["tensor_parallel"] == (1, 3)
    assert narrowed(domains, [requirement("tensor_parallel", {"max": 4})])["tensor_parallel"] is None


def test_naming_a_value_that_is_off_by_default_is_permission() -> None:
    domains = default_domains(JOB)
    assert "int8" not in (domains["gradient_compression"] or ())
    assert narrowed(domains, [requirement("gradient_compression", "int8")])["gradient_compression"] == ("int8",)
    assert "int8" in (permit_compression(domains, "lossy")["gradient_compression"] or ())


def test_offload_permissions() -> None:
    assert {r.key for r in offload_requirements("forbid")} == {
        "optimizer_offload",
        "parameter_offload",
        "activation_offload",
    }
    assert {r.key for r in offload_requirements("optimizer")} == {"parameter_offload", "activation_offload"}
    assert offload_requirements("allow") == ()


@pytest.mark.parametrize(
    ("key", "wish", "error", "words"),
    [
        ("tensor_paralel", 2, UnknownName, "did you mean tensor_parallel"),
        ("gradient_compression", "zip", UnknownName, "zip"),
        ("zero_stage", [], BrokenRule, "leaves no value"),
        ("zero_stage", "two", BrokenRule, "not a whole number"),
        ("sequence_parallel", 7, BrokenRule, "neither true nor false"),
        ("precision", {"min": 1}, BrokenRule, "no range"),
    ],
)
def test_bad_wishes_are_one_line_errors(key: str, wish: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        requirement(key, wish)


def test_a_problem_refuses_contradictions() -> None:
    calibration = instance(0).problem().calibration
    with pytest.raises(BrokenRule, match="name at least one"):
        Problem(job=JOB, calibration=calibration, objectives=())
    with pytest.raises(BrokenRule, match="not in"):
        Problem(job=JOB, calibration=calibration, objective_tolerance=1.5)
    pool = JOB.pool.model_copy(update={"price_per_gpu_hour": None})
    job = type(JOB)(model=JOB.model, training=JOB.training, cluster=JOB.cluster.model_copy(update={"pools": (pool,)}))
    with pytest.raises(MissingKey, match="price_per_gpu_hour"):
        Problem(job=job, calibration=calibration, objectives=("cost",))


def test_device_counts_are_parts_of_a_node_then_whole_nodes() -> None:
    pool = JOB.pool.model_copy(update={"nodes": 3, "gpus_per_node": 4})
    job = type(JOB)(model=JOB.model, training=JOB.training, cluster=JOB.cluster.model_copy(update={"pools": (pool,)}))
    assert device_counts(job) == (1, 2, 3, 4, 8, 12)
