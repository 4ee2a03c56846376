"""The faces of the planner that others build on: verbs, flags, exit codes, keys of requests and plans."""

import json
import subprocess
import sys
from typing import Any

import pytest
import typer

from cost_models.specs.configuration import Configuration
from planner.cli import app as cli
from planner.constraints import DECISIONS, Constraints
from planner.plan import Plan
from planner.request import PlanRequest
from solver.domains import CHOICES, FLAGS, NUMBERS
from tests.contracts.tree import ROOT

REQUEST = {
    "--model", "--device", "--gpus", "--nodes", "--sequence-length", "--global-batch-size", "--method", "--precision",
    "--optimizer", "--backend", "--set", "--json", "--file", "-f", "--help",
}  # fmt: skip
FACES = {
    "plan": REQUEST | {"--objective", "--export", "--save-dir", "--why-not", "--certificate"},
    "estimate": REQUEST,
    "frontier": {"job", "--file", "-f", "--axes", "--points", "--save-dir", "--set", "--json", "--help"},
    "ladder": {"job", "--file", "-f", "--gpus", "--set", "--json", "--help"},
    "export": {"plan", "--to", "--save-dir", "--nodes", "--learning-rate", "--lossy", "--json", "--help"},
    "certificate": {"plan", "--output", "-o", "--help"},
    "verify": {"certificate", "--json", "--help"},
    "validate": {"--data", "--rows", "--cases", "--tracker", "--json", "--help"},
    "support": {"--json", "--help"},
    "calibrate": {"--data", "--site", "--output", "-o", "--write", "--check", "--json", "--help"},
    "models": {"text", "--json", "--help"},
    "devices": {"text", "--json", "--help"},
}
PLAN = {
    "status", "configuration", "prediction", "optimality", "assumptions", "explanation", "warnings", "alternatives",
    "recommendations", "infeasibility", "request", "provenance", "envelope",
}  # fmt: skip
PARTS = {
    "Prediction": {"memory", "time"},
    "MemoryPrediction": {
        "verdict", "oom_probability", "allocated", "reserved", "device", "conservative_bytes", "usable_bytes",
        "binding", "breakdown_bytes", "per_stage", "phases", "host_bytes", "host_usable_bytes",
    },
    "Quantity": {"median_bytes", "lower_bytes", "upper_bytes"},
    "Binding": {"stage", "phase", "instant"},
    "StagePrediction": {"stage", "instant", "allocated_bytes", "instants_bytes", "host_bytes"},
    "TimePrediction": {
        "step_seconds", "interval_seconds", "breakdown_seconds", "hidden_seconds", "tokens_per_second_per_gpu",
        "samples_per_second", "mfu", "communication_fraction",
    },
    "Optimality": {"objective", "value", "bound", "gap", "proven", "candidates", "certificate"},
    "Assumption": {"key", "value", "from", "scenarios", "spread"},
    "Explanation": {"kind", "subject", "text", "memory_delta_bytes", "step_delta_seconds", "verdict"},
    "Alternative": {"configuration", "value", "step_seconds", "conservative_bytes", "world_size", "within_noise"},
    "Recommendations": {"learning_rate_scale", "warmup_steps", "environment", "dataloader_workers"},
    "Infeasibility": {"conflict", "nearest_miss", "relaxations"},
    "Conflict": {"resource", "text", "shortfall_bytes", "phase_shortfall_bytes"},
    "NearestMiss": {"configuration", "memory", "step_seconds"},
    "Relaxation": {"change", "verified", "text", "settings", "step_seconds"},
    "Question": {
        "model", "cluster", "training", "backends", "objective", "objective_tolerance", "constraints", "configuration",
    },
    "Provenance": {
        "meshwright", "calibration", "catalogue", "legality", "ortools", "request_hash", "class",
    },
    "Envelope": {"id", "created_at", "solve_seconds", "host", "content_sha256"},
}  # fmt: skip


def commands() -> dict[str, Any]:
    group: Any = typer.main.get_command(cli.app)
    return dict(group.commands)


@pytest.mark.parametrize("verb", sorted(FACES))
def test_a_verb_has_exactly_these_flags(verb: str) -> None:
    command = commands()[verb]
    found = {name for parameter in command.params for name in (parameter.opts or [parameter.name])}
    assert found | {"--help"} == FACES[verb]


def test_these_are_the_verbs() -> None:
    assert set(commands()) == set(FACES)


def test_exit_codes_are_as_documented() -> None:
    assert (cli.OTHER, cli.USAGE, cli.INFEASIBLE, cli.UNREACHABLE) == (1, 2, 3, 4)


def test_a_plan_has_exactly_these_keys() -> None:
    schema = Plan.model_json_schema(mode="serialization")
    assert set(schema["properties"]) == PLAN
    for name, keys in PARTS.items():
        assert set(schema["$defs"][name]["properties"]) == keys, name


def test_a_request_has_exactly_these_keys() -> None:
    assert set(PlanRequest.model_fields) == {
        "model", "cluster", "training", "backend", "objective", "objective_tolerance", "constraints", "configuration",
    }  # fmt: skip


def test_every_decision_of_a_configuration_can_be_restricted() -> None:
    derived = {"backend", "stages", "optimizer", "lora"}
    assert set(Configuration.model_fields) - derived <= set(DECISIONS)
    assert set(DECISIONS) <= set(Constraints.model_fields)


def test_the_solver_knows_every_decision_that_a_request_may_restrict() -> None:
    assert set(DECISIONS) <= {*CHOICES, *FLAGS, *NUMBERS}


def test_the_schema_of_a_request_is_json() -> None:
    schema = json.loads(json.dumps(PlanRequest.model_json_schema()))
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize("module", ["planner.request", "planner.planning", "planner.exporters", "planner.cli"])
def test_an_import_loads_no_solver_and_no_server(module: str) -> None:
    heavy = ("ortools", "fastapi", "sqlalchemy", "torch", "deepspeed", "scipy")
    code = f"import sys, {module}; print(*sorted(set({heavy!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
