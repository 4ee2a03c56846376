"""What people read, to the letter: a plan, an infeasible answer, and every artifact of both exporters.

After a change on purpose: MESHWRIGHT_UPDATE_GOLDEN=1 python -m pytest tests/golden/test_rendering.py
"""

import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from planner.cli.render import artifact_text, estimate_view, plan_view, why_not_view
from planner.exporters import render
from planner.plan import Plan
from planner.version import __version__
from tests.unit.planner.plans import configuration, infeasible, pipeline, plan

FOLDER = Path(__file__).parent / "rendering"


def shown(view: Callable[[Console], None]) -> str:
    console = Console(file=io.StringIO(), width=120, highlight=False)
    view(console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return "".join(line.rstrip() + "\n" for line in text.splitlines())


def artifacts(made: Plan, target: str) -> str:
    text = "".join(artifact_text(artifact) for artifact in render(made, target))
    return text.replace(f"meshwright {__version__}", "meshwright VERSION")


TEXTS: dict[str, Callable[[], str]] = {
    "plan.txt": lambda: shown(lambda console: plan_view(console, plan())),
    "pipeline.txt": lambda: shown(lambda console: plan_view(console, plan(pipeline(4)))),
    "infeasible.txt": lambda: shown(lambda console: plan_view(console, infeasible())),
    "estimate.txt": lambda: shown(lambda console: estimate_view(console, plan(optimality=None))),
    "why_not.txt": lambda: shown(lambda console: why_not_view(console, "zero_stage=3", plan(), plan())),
    "deepspeed.txt": lambda: artifacts(plan(), "deepspeed"),
    "deepspeed_zero3.txt": lambda: artifacts(plan(configuration(zero_stage=3)), "deepspeed"),
    "megatron.txt": lambda: artifacts(
        plan(pipeline(4, backend={"name": "megatron"}, attention="flash", tensor_parallel=2, data_parallel=1)),
        "megatron",
    ),
    "accelerate.txt": lambda: artifacts(
        plan(configuration(backend={"name": "fsdp"}, zero_stage=3, stages=[{"layers": 32, "recompute": {"full": 32}}])),
        "accelerate",
    ),
    "plan.json": lambda: plan().to_json(),
    "infeasible.json": lambda: infeasible().to_json(),
}


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_the_text_is_the_committed_one(name: str) -> None:
    golden, text = FOLDER / name, TEXTS[name]()
    if os.environ.get("MESHWRIGHT_UPDATE_GOLDEN"):
        FOLDER.mkdir(exist_ok=True)
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("make", [plan, infeasible])
def test_the_committed_json_is_read_back(make: Callable[[], Plan]) -> None:
    name = "plan.json" if make is plan else "infeasible.json"
    assert Plan.from_json((FOLDER / name).read_text(encoding="utf-8")) == make()
