"""Infeasible problems: the conflict is minimal, the nearest miss least, every relaxation verified on both sides."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from cost_models import catalog, pools
from cost_models.job import Job
from cost_models.ledger import estimate
from cost_models.memory import memory_ledger
from cost_models.specs.choices import COMPRESSIONS
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.training import TrainingSpec
from planner.planning import Asked
from planner.problem import problem_of
from planner.request import PlanRequest
from solver.conflicts import demands, explain
from solver.domains import offload_requirements, requirement
from solver.feasibility import feasible, feasible_or_none
from solver.forbidding import MOVES, forbidding, may_help
from solver.legality import legality
from solver.levers import NUMBERS, SWITCHES, Switch
from solver.nearest_miss import nearest_miss, phase_needs
from solver.other_splits import other_splits
from solver.pairs import pairs
from solver.problem import Limits, Problem
from solver.refuted import Refuted
from solver.relaxations import LEVERS, relaxations, without_wishes
from solver.search import solve
from solver.space import backend_space
from tests.oracle.brute_force import configurations
from tests.oracle.instances import Instance, instance
from tests.scale import scaled

INFEASIBLE = [
    s for s in range(scaled(40, 120)) if not feasible(instance(s).problem()) and feasible(instance(s).problem()).legal
]


def _enough(problem: Problem, text: str) -> Problem:
    """The problem without one demand, by changing the job itself rather than by setting a resource aside."""
    kept = tuple(r for r in problem.requirements if r.text != text)
    if len(kept) < len(problem.requirements):
        return replace(problem, requirements=kept)
    pool = problem.job.pool
    if "of usable memory" in text:
        huge = {"usable_memory_bytes": 2**50, "total_memory_bytes": 2**50, "marketing_memory_bytes": 2**50}
        pool = pool.model_copy(update={"device": pool.device.model_copy(update=huge)})
    elif "of host memory" in text:
        pool = pool.model_copy(update={"host_memory_bytes": 2**50})
    else:
        return replace(problem, limits=Limits())
    job = problem.job
    cluster = job.cluster.model_copy(update={"pools": (pool,)})
    return replace(problem, job=type(job)(model=job.model, training=job.training, cluster=cluster))


@pytest.mark.parametrize("seed", INFEASIBLE[: scaled(6, 40)])
def test_a_conflict_is_infeasible_and_dissolves_without_any_one_member(seed: int) -> None:
    case = instance(seed)
    problem = case.problem(
        requirements=(requirement("zero_stage", case.choices["zero_stage"]), *offload_requirements("forbid"))
    )
    conflict = explain(problem).conflict
    assert conflict
    assert {d.text for d in conflict} <= {d.text for d in demands(problem)}
    assert not feasible(problem)
    for demand in conflict:
        others = [d for d in demands(problem) if d not in conflict]
        relaxed = problem
        for text in [d.text for d in others] + [demand.text]:
            relaxed = _enough(relaxed, text)
        assert feasible(relaxed), f"without {demand.text!r}"


def _least_shortfall(case: Instance) -> float:
    """By brute force: least bytes that a configuration lacks per device, host memory aside."""
    ledgers = (
        memory_ledger(case.job, c, catalog.calibration(), oom_risk=0.01)
        for c in configurations(case.job, case.choices, case.gpus)
    )
    return min(ledger.conservative_bytes - ledger.usable_bytes for ledger in ledgers)


@pytest.mark.parametrize("seed", INFEASIBLE[: scaled(5, 40)])
def test_the_nearest_miss_is_the_least(seed: int) -> None:
    case = instance(seed)
    miss = nearest_miss(case.problem(), host_memory=False)
    if miss is None:
        assert not list(configurations(case.job, case.choices, case.gpus))
        return
    layers = case.job.model.num_hidden_layers
    # Rounding up of a few coefficients a layer may prefer a neighbour.
    assert miss.shortfall_bytes == pytest.approx(max(_least_shortfall(case), 0.0), abs=1024 * 6 * (layers + 3))
    ledger = estimate(case.job, miss.configuration, catalog.calibration()).memory
    needs = phase_needs(ledger)
    assert max(needs.values()) == pytest.approx(ledger.conservative_bytes)
    assert miss.shortfall_bytes == max(ledger.conservative_bytes - ledger.usable_bytes, 0.0)
    assert set(miss.phase_shortfall_bytes) == {p for p, need in needs.items() if need > ledger.usable_bytes}


@pytest.mark.parametrize("seed", INFEASIBLE[: scaled(2, 12)])
def test_relaxations_work_where_they_say_and_not_one_unit_before(seed: int) -> None:
    problem = instance(seed).problem()
    tried = {r.lever: r for r in relaxations(problem, ("optimizer", "sequence_length", "device_memory"))}
    for lever in NUMBERS:
        if lever.name not in tried or not tried[lever.name].feasible:
            continue
        relaxation = tried[lever.name]
        units = next(u for u in range(1, 2000) if lever.value(problem, u) == relaxation.value)
        there, before = lever.at(problem, units), lever.at(problem, units - 1)
        assert there is not None
        assert before is not None
        assert solve(there).configuration is not None
        assert solve(before).configuration is None
        assert relaxation.infeasible_before
    for switch in SWITCHES:
        if switch.name in tried:
            changed = switch.change(problem)
            assert changed is not None
            assert (solve(changed).configuration is not None) == tried[switch.name].feasible


def _changed(problem: Problem, steps: Sequence[tuple[str, int]]) -> Problem | None:
    levers = {lever.name: lever for lever in (*SWITCHES, *NUMBERS)}
    changed: Problem | None = problem
    for name, units in steps:
        lever = levers[name]
        if changed is not None:
            changed = lever.change(changed) if isinstance(lever, Switch) else lever.at(changed, units)
    return changed


@pytest.mark.parametrize("seed", INFEASIBLE[: scaled(3, 16)])
def test_pairs_work_where_they_say_and_not_one_unit_before(seed: int) -> None:
    problem = replace(instance(seed).problem(), requirements=offload_requirements("forbid"))
    found = list(pairs(problem, relaxations(problem)))
    for pair in found:
        assert pair.feasible
        assert len(pair.steps) == 2
        there = _changed(problem, pair.steps)
        assert there is not None
        assert feasible(there), pair.change
        for k, (name, units) in enumerate(pair.steps):
            before = [*pair.steps[:k], *([(name, units - 1)] if units > 1 else []), *pair.steps[k + 1 :]]
            changed = _changed(problem, before)
            assert changed is not None
            assert not feasible_or_none(changed), f"{pair.change} without {name}"


def test_a_deadline_is_named_when_only_it_stands_in_the_way() -> None:
    seed = next(s for s in range(40) if feasible(instance(s).problem()))
    problem = instance(seed).problem(limits=Limits(max_step_seconds=1e-6))
    found = explain(problem)
    assert [d.resource for d in found.conflict] == ["max_step_seconds"]


def test_when_nothing_is_legal_the_rules_are_named() -> None:
    case = instance(next(s for s in range(60) if instance(s).choices["backend"] == ["ddp"]))
    problem = case.problem(requirements=(requirement("zero_stage", 3),))
    assert not feasible(problem)
    found = explain(replace(problem, requirements=(requirement("zero_stage", 3), requirement("precision", "fp32"))))
    assert found.legal == 0
    assert "no-sharding" in {d.rule for d in found.rules}
    assert "zero_stage: 3" in {d.text for d in found.conflict} or not found.conflict


def _catalogued(gpus: int, method: str = "full", preset: str = "llama-2-7b", **parts: Any) -> Problem:
    device = catalog.device("a100-sxm-80gb")
    cluster = ClusterSpec(pools=(pools.pool(device=device, nodes=gpus // 8, gpus_per_node=8),))
    training = TrainingSpec.read({"method": method, "sequence_length": 4096, "global_batch_size": 64})
    job = Job(model=catalog.model(preset), cluster=cluster, training=training)
    return Problem(job=job, calibration=catalog.calibration(), **parts)


PINS = (requirement("zero_stage", 3), requirement("pipeline_parallel", 4))


def test_pins_that_a_rule_forbids_are_told_with_the_rule() -> None:
    problem = _catalogued(8, backends=("deepspeed",), requirements=PINS)
    found = explain(problem)
    assert {d.text for d in found.conflict} == {"zero_stage: 3", "pipeline_parallel: 4"}
    assert [f.rule for f in found.forbidden] == ["zero-with-pipeline"]
    assert found.forbidden[0].text == (
        "zero_stage 3 exceeds 1 with pipeline_parallel 4: DeepSpeed's pipeline engine refuses ZeRO-2 and ZeRO-3"
    )
    without = {r.change: r for r in without_wishes(problem, [d.text for d in found.conflict])}
    assert set(without) == {"without zero_stage: 3", "without pipeline_parallel: 4"}
    for key, change in (("pipeline_parallel", "without zero_stage: 3"), ("zero_stage", "without pipeline_parallel: 4")):
        configuration = without[change].configuration
        assert configuration is not None
        assert getattr(configuration, key) == {"pipeline_parallel": 4, "zero_stage": 3}[key]
    assert not any(may_help(lever, found.forbidden) for lever in MOVES)
    assert may_help("backend", found.forbidden)


def test_each_back_end_has_a_minimal_set_of_rules() -> None:
    problem = _catalogued(8, requirements=PINS)
    found = forbidding(problem)
    for name in {f.backend for f in found}:
        every = legality(name).searched
        minimal = [f.rule for f in found if f.backend == name]
        assert not backend_space(problem, name, rules=tuple(r for r in every if r.id in minimal)).legal.any()
        for rule in minimal:
            others = tuple(r for r in every if r.id in minimal and r.id != rule)
            assert backend_space(problem, name, rules=others).legal.any()


def test_nothing_is_forbidden_where_memory_is_what_lacks() -> None:
    found = explain(instance(INFEASIBLE[0]).problem())
    assert found.forbidden == ()
    assert all(may_help(lever, found.forbidden) for lever in LEVERS)


def test_a_batch_and_a_part_of_the_devices_that_divide_are_offered() -> None:
    problem = _catalogued(2048, "qlora", backends=("deepspeed",))
    found = explain(problem)
    assert [f.rule for f in found.forbidden] == ["quantized-weights-one-piece"]
    assert may_help("gpus", found.forbidden)
    offered = {r.lever: r for r in other_splits(problem)}
    assert offered["larger_batch"].value == 2048
    assert offered["fewer_gpus"].value == 64
    assert all(r.feasible and r.configuration is not None for r in offered.values())


def test_host_memory_is_limited_to_the_least_that_works_and_named_with_units() -> None:
    problem = _catalogued(8, preset="pythia-160m", limits=Limits(max_host_memory_bytes=2**20))
    found = explain(problem)
    assert [d.text for d in found.conflict] == ["max_host_memory_bytes: 1MiB"]
    (limit,) = found.limits
    assert limit.feasible
    assert isinstance(limit.value, int)
    assert limit.settings == (f"constraints.max_host_memory_bytes={limit.value // 2**20}MiB",)
    assert found.nearest_miss is not None
    assert solve(replace(problem, limits=Limits(max_host_memory_bytes=limit.value))).configuration is not None
    assert solve(replace(problem, limits=Limits(max_host_memory_bytes=limit.value - 2**20))).configuration is None


def test_a_stated_limit_is_printed_as_its_change_is() -> None:
    stated = Limits(
        max_step_seconds=50.0,
        max_memory_bytes=2**30,
        max_energy_per_step=0.1,
        min_tokens_per_second=86488.69785907339,
    )
    texts = {d.resource: d.text for d in demands(_catalogued(8, limits=stated))}
    assert texts["max_step_seconds"] == "max_step_seconds: 50 s"
    assert texts["max_memory_bytes"] == "max_memory_bytes: 1024MiB"
    assert texts["max_energy_per_step"] == "max_energy_per_step: 0.1 J"
    assert texts["min_tokens_per_second"] == "min_tokens_per_second: 86488.69786"


def test_levers_have_one_name_each() -> None:
    assert len(set(LEVERS)) == len(LEVERS)


@pytest.mark.parametrize("seed", INFEASIBLE[: scaled(3, 40)])
def test_an_answer_never_asks_again_what_it_refuted_and_asks_all_else(seed: int) -> None:
    problem = replace(instance(seed).problem(), refuted=Refuted())
    searched = feasible(problem).legal
    assert searched
    assert feasible(problem).legal == 0
    open_to_all = replace(problem, domains=problem.domains.with_values(gradient_compression=COMPRESSIONS))
    wider = feasible(open_to_all)
    assert bool(wider) == bool(feasible(replace(open_to_all, refuted=None)))
    assert wider.legal == feasible(replace(open_to_all, refuted=None)).legal - searched


@pytest.mark.parametrize("seed", INFEASIBLE[: scaled(1, 40)])
def test_remembering_changes_no_relaxation(seed: int) -> None:
    problem = instance(seed).problem()
    remembering = replace(problem, refuted=Refuted())
    assert relaxations(problem) == relaxations(remembering)
    assert tuple(pairs(problem, relaxations(problem))) == tuple(pairs(remembering, relaxations(remembering)))


@pytest.mark.parametrize("share", [0.0, 1e-4])
def test_a_share_of_communication_that_works_is_said(share: float) -> None:
    """No layout is offered where every row waits for more than the limit; nor is a limit of 0 a division by it."""
    architecture = {
        "hidden_size": 1024,
        "num_hidden_layers": 13,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
        "vocab_size": 32000,
    }
    request = {
        "model": {"architecture": architecture},
        "cluster": {"pools": [{"device": "a100-sxm-80gb", "nodes": 2, "gpus_per_node": 1}]},
        "training": {"sequence_length": 512, "global_batch_size": 7},
        "constraints": {"max_communication_fraction": share, "min_gpus": 2},
    }
    asked = Asked.of(PlanRequest.read(request), catalog.calibration())
    problem = problem_of(asked.resolved, asked.calibration)
    refused = solve(problem)
    assert refused.status == "infeasible"
    assert refused.candidates.priced > 300
    assert refused.candidates.bounded == refused.candidates.solved == 0
    found = explain(problem)
    assert {demand.resource for demand in found.conflict} == {"max_communication_fraction"}
    (change,) = found.limits
    assert change.feasible
    assert isinstance(change.value, float)
    assert not change.infeasible_before, "a smaller share may work"
    for value, works in ((change.value, True), (change.value / 4, False)):
        limits = replace(problem.limits, max_communication_fraction=value)
        answer = solve(replace(problem, limits=limits)).configuration
        assert (answer is not None) == works
        if answer is not None:
            assert estimate(problem.job, answer, problem.calibration).time.communication_fraction <= value
