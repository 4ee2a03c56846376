"""Progress: value, bound and gap of one objective at a time."""

from planner.request import PlanRequest
from service.solving.worker import Progress, Task, Told, answer
from tests.unit.service.client import JOB


def test_a_bound_belongs_to_its_objective() -> None:
    seen: list[Progress] = []
    told = Told(seen.append)
    for name, value in (("memory", 10.0), ("memory bound", 8.0), ("throughput bound", 3.0), ("throughput", 4.0)):
        told.value(name, value)
        told.line(f"{name} {value}")
    told.line("looking for relaxations")
    assert [(p.objective, p.incumbent, p.bound, p.gap) for p in seen] == [
        ("memory", 10.0, None, None),
        ("memory", 10.0, 8.0, 0.2),
        ("throughput", None, 3.0, None),
        ("throughput", 4.0, 3.0, 0.25),
        ("throughput", 4.0, 3.0, 0.25),
    ]
    assert seen[-1].text == "looking for relaxations"


def test_a_plan_that_bounds_alone_prove_tells_bound_and_gap_too() -> None:
    seen: list[Progress] = []
    request = {**JOB, "model": {"preset": "llama-3-70b"}}
    request["cluster"] = {"pools": [{"device": "h100-sxm-80gb", "nodes": 16, "gpus_per_node": 8}]}
    request["training"] = {"sequence_length": 8192, "global_batch_size": 512}
    found = answer(Task(id="x", request=PlanRequest.model_validate(request)), seen.append)
    assert found.plan_json is not None
    told = [p for p in seen if p.incumbent is not None and p.bound is not None]
    assert [p.gap for p in told if p.gap], "a gap while it is open"
    assert told[-1].gap == 0.0
    best = told[-1].incumbent
    assert best is not None
    assert all(0 < p.bound <= best for p in seen if p.bound is not None), "none is above the optimum"


def test_a_solve_tells_what_it_finds_and_proves() -> None:
    seen: list[Progress] = []
    request = {**JOB, "model": {"preset": "llama-2-70b"}, "objective": "memory"}
    request["cluster"] = {"pools": [{"device": "a100-sxm-40gb", "nodes": 8, "gpus_per_node": 8}]}
    found = answer(Task(id="x", request=PlanRequest.model_validate(request)), seen.append)
    assert found.plan_json is not None
    assert [p for p in seen if p.gap is not None], "this one is closed by CP-SAT, bound by bound"
    assert all(p.bound <= p.incumbent * (1 + 1e-9) for p in seen if p.bound is not None and p.incumbent is not None)
