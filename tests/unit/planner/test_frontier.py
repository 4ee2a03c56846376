"""Frontiers and ladders at the front door: in Python and at the command line."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from cost_models.errors import BrokenRule, MissingKey
from planner.cli import main
from planner.frontier import frontier, ladder
from planner.planning import plan
from planner.request import PlanRequest
from tests.unit.planner.requests import SMALL

Captured = pytest.CaptureFixture[str]


def small(price: float | None = 2.0, nodes: int = 2, **constraints: Any) -> PlanRequest:
    pools = [{**SMALL["cluster"]["pools"][0], "nodes": nodes, "price_per_gpu_hour": price}]
    return PlanRequest.read({**SMALL, "cluster": {"pools": pools}, "constraints": constraints})


def job(tmp_path: Path, request: PlanRequest) -> str:
    path = tmp_path / "job.json"
    path.write_text(request.model_dump_json())
    return str(path)


def test_points_go_from_the_fastest_to_the_leanest() -> None:
    request = small()
    found = frontier(request, points=5)
    assert found.status == "optimal"
    assert 2 <= len(found.points) <= 5
    assert all(point.proven and point.gpus == 4 for point in found.points)
    for faster, leaner in itertools.pairwise(found.points):
        assert faster.step_seconds <= leaner.step_seconds
        assert faster.allocated_bytes > leaner.allocated_bytes
    fastest = plan(request)
    assert fastest.prediction is not None
    assert found.points[0].step_seconds == fastest.prediction.time.step_seconds
    assert found.request.objective == ("throughput",)


def test_equal_questions_have_equal_frontiers() -> None:
    first, second = (frontier(small(), points=4).model_dump(exclude={"envelope"}) for _ in range(2))
    assert first == second


def test_a_ladder_has_a_rung_for_every_count() -> None:
    request = small()
    found = ladder(request)
    assert [rung.gpus for rung in found.rungs] == [1, 2, 4]
    for rung in found.rungs:
        alone = plan(small(min_gpus=rung.gpus, max_gpus=rung.gpus))
        assert (rung.point is None) == (alone.status == "infeasible")
        if rung.point is None:
            assert rung.status == "infeasible"
            assert rung.reason
        elif alone.prediction is not None:
            assert rung.point.step_seconds == alone.prediction.time.step_seconds
            expected = rung.point.step_seconds * rung.gpus * 2.0 / 3600
            assert rung.point.cost_per_step == pytest.approx(expected, rel=1e-8)


def test_a_rung_without_a_plan_says_why() -> None:
    pool = {**SMALL["cluster"]["pools"][0], "usable_memory": "3GiB"}
    request = PlanRequest.read({**SMALL, "cluster": {"pools": [pool]}, "constraints": {"offload": "forbid"}})
    first = ladder(request, 1, 2).rungs[0]
    assert first.status == "infeasible"
    assert first.reason == "not enough: offload: forbid; 3.00 GiB of usable memory on each a100-sxm-40gb"


def test_what_frontiers_refuse() -> None:
    with pytest.raises(MissingKey, match="price_per_gpu_hour"):
        frontier(small(price=None), ("time", "cost"))
    with pytest.raises(BrokenRule, match="points 1 is not between 2 and"):
        frontier(small(), points=1)
    with pytest.raises(BrokenRule, match=r"gpus: 8\.\.4 is no range within the 4 GPUs"):
        ladder(small(), 8)
    with pytest.raises(BrokenRule, match=r"gpus: 1\.\.8 goes beyond the 4 GPUs of the cluster"):
        ladder(small(), 1, 8)


def test_the_commands_print_json_and_tables(tmp_path: Path, capsys: Captured) -> None:
    path = job(tmp_path, small())
    assert main(["frontier", path, "--axes", "time,cost", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["complete"] is True
    costs = [point["cost_per_step"] for point in document["points"]]
    assert costs == sorted(costs, reverse=True)
    assert main(["ladder", "-f", path, "--gpus", "2..4"]) == 0
    out = capsys.readouterr().out
    assert "price of a step" in out
    assert main(["ladder", path, "--gpus", "4..2"]) == 2
    assert main(["frontier", path, "--axes", "memory,time"]) == 2
    capsys.readouterr()


def test_saved_points_are_plans_that_export_reads(tmp_path: Path, capsys: Captured) -> None:
    folder, path = tmp_path / "points", job(tmp_path, small(tensor_parallel=1))
    assert main(["frontier", path, "--points", "2", "--save-dir", str(folder)]) == 0
    capsys.readouterr()
    names = sorted(file.name for file in folder.iterdir())
    assert names == ["point-01.json", "point-02.json"]
    assert main(["export", str(folder / "point-02.json"), "--to", "deepspeed"]) == 0
    assert "ds_config.json" in capsys.readouterr().out


def test_an_infeasible_frontier_exits_with_3(tmp_path: Path, capsys: Captured) -> None:
    path = job(tmp_path, small(nodes=1, offload="forbid", zero_stage=0))
    assert main(["frontier", path, "--set", "model={preset: llama-3-70b}"]) == 3
    assert "no configuration is feasible" in capsys.readouterr().out
