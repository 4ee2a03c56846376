"""A floor imports only floors below it, and only the third-party packages it is built on; front doors stay light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contracts.tree import FLOORS, ROOT, imports, sources

TYPED_SETTINGS = {"pydantic", "pydantic_settings", "pydantic_core", "yaml"}
TERMINAL = {"typer", "click", "rich", "structlog"}
THIRD_PARTY: dict[str, set[str]] = {
    "calibration_data": set(),
    # huggingface_hub is optional, imported inside a function, and fetches config.json only.
    "cost_models": {"numpy", "pydantic", "yaml", "huggingface_hub"},
    "solver": {"numpy", "pydantic", "yaml", "ortools", "packaging"},
    "planner": {"numpy", "scipy", "packaging", "rfc8785", "huggingface_hub", "matplotlib"} | TYPED_SETTINGS | TERMINAL,
    "service": {
        "fastapi",
        "starlette",
        "uvicorn",
        "sqlalchemy",
        "alembic",
        "distributed",
        "httpcore2",
        "opentelemetry",
        "jwt",
        "prometheus_client",
        "standardwebhooks",
        "anyio",
    }
    | TYPED_SETTINGS
    | TERMINAL,
    "executor": {"torch", "deepspeed", "transformers", "peft", "psutil", "pynvml", "mlflow", "wandb", "httpx2", "numpy"}
    | TYPED_SETTINGS
    | TERMINAL,
}
HEAVY = ("ortools", "fastapi", "sqlalchemy", "torch", "deepspeed", "transformers", "scipy", "pandas")
LIGHT: dict[str, tuple[str, ...]] = {
    "cost_models.table": (*HEAVY, "typer", "rich"),
    "planner": HEAVY,
    "planner.cli": HEAVY,
    "executor": HEAVY,
    "executor.cli": HEAVY,
    "solver": ("fastapi", "sqlalchemy", "torch", "deepspeed", "transformers", "scipy"),
    "service": ("torch", "deepspeed", "transformers"),
    "service.app": ("torch", "deepspeed", "transformers"),
}


def test_the_import_contracts_hold() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("floor", FLOORS)
def test_a_floor_uses_only_its_own_third_parties(floor: str) -> None:
    known = THIRD_PARTY[floor] | set(FLOORS) | set(sys.stdlib_module_names)
    strangers = {f"{path}: {name}" for path, tree in sources(floor) for name in imports(tree) if name not in known}
    assert not strangers


@pytest.mark.parametrize("module", sorted(LIGHT))
def test_an_import_stays_light(module: str) -> None:
    code = f"import sys, {module}; print(*sorted(set({LIGHT[module]!r}) & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [], f"import {module} loads {done.stdout.strip()}"


def test_training_frameworks_are_imported_inside_functions_only() -> None:
    """A script that training processes run is the exception: it lives in a folder of its own."""
    offenders = [
        f"{path}:{node.lineno}"
        for path, tree in sources("executor", "planner", "service")
        if not path.startswith("executor/examples/")
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom) and {"torch", "deepspeed", "transformers"} & set(imports(node))
    ]
    assert not offenders


def test_the_planner_runs_without_the_services_libraries() -> None:
    """Also where they are not installed: `meshwright plan`, and `--help`, which lists the service's verbs."""
    blocked = {
        "sqlalchemy",
        "alembic",
        "fastapi",
        "distributed",
        "psycopg",
        "httpcore2",
        "opentelemetry",
        "standardwebhooks",
    }
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({sorted(blocked)!r}));"
        "from planner.cli import main; code = main(sys.argv[1:]); sys.exit(code)"
    )
    job = {"model": "gpt2", "device": "a100-sxm-80gb", "gpus": 2, "sequence-length": 1024, "global-batch-size": 8}
    plan = ["plan", "--json", *(word for key, value in job.items() for word in (f"--{key}", str(value)))]
    for arguments in (plan, ["--help"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr
