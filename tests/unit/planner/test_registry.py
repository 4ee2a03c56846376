"""Third parties add export targets by an entry point, and a broken command of another floor breaks no other."""

from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet

import planner.exporters as registry
from planner.cli import app as cli
from planner.cli import main
from planner.exporters import Artifact, ExportOptions, render, targets
from planner.plan import Plan
from tests.unit.planner.plans import plan


class Plain:
    """An exporter of somebody else."""

    name = "plain"
    versions = SpecifierSet(">=1")

    def unsupported(self, plan: Plan) -> tuple[str, ...]:
        return ()

    def export(self, plan: Plan, options: ExportOptions) -> tuple[Artifact, ...]:
        return (Artifact(path="plain.txt", media_type="text/plain", text=plan.status),)


def points(*found: EntryPoint) -> Any:
    return lambda **asked: EntryPoints(found).select(**asked)


def test_a_target_of_a_third_party_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("plain", f"{__name__}:Plain", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", points(point))
    assert targets()[-1] == "plain"
    (artifact,) = render(plan(), "plain")
    assert artifact.text == "optimal"


def test_a_command_that_cannot_be_loaded_says_so_only_when_called(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "entry_points", points(EntryPoint("broken", "no_such_module:command", cli.GROUP)))
    assert main(["devices", "--json"]) == 0
    assert main(["--help"]) == 0
    assert "broken" in capsys.readouterr().out
    assert main(["broken"]) == 1
    assert "broken cannot be loaded: No module named 'no_such_module'" in capsys.readouterr().err
