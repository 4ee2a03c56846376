"""The import packages have generic names: the ones imported are ours, and the wheel carries everything they read."""

import importlib.util
import zipfile
from importlib.metadata import entry_points, packages_distributions
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from planner.version import __version__
from tests.contracts.tree import FLOORS, ROOT, committed


@pytest.mark.parametrize("name", FLOORS)
def test_the_package_imported_is_ours(name: str) -> None:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin == str(ROOT / name / "__init__.py")


def test_no_other_distribution_installs_a_package_of_these_names() -> None:
    owners = packages_distributions()
    assert {name: owners.get(name, ["meshwright"]) for name in FLOORS} == {name: ["meshwright"] for name in FLOORS}


@pytest.mark.parametrize(("group", "name"), [("console_scripts", "meshwright"), ("console_scripts", "meshwright-exec")])
def test_entry_points_are_installed_and_load(group: str, name: str) -> None:
    (point,) = [point for point in entry_points(group=group) if point.name == name]
    assert callable(point.load())


def test_commands_of_floors_above_load() -> None:
    points = entry_points(group="meshwright.commands")
    assert "serve" in points.names
    assert all(callable(point.load()) or hasattr(point.load(), "registered_commands") for point in points)


def test_the_wheel_carries_every_committed_file_of_the_packages(tmp_path: Path) -> None:
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    assert __version__ in Path(wheel).name
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    ours = {path.relative_to(ROOT).as_posix() for path in committed()}
    wanted = {name for name in ours if name.split("/")[0] in FLOORS}
    assert not wanted - packed
    assert not {name for name in packed if name.split("/")[0] not in FLOORS and ".dist-info/" not in name}
