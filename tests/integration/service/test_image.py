"""The Dockerfile's steps without Docker: what it runs, with the environment it sets, over a root that is read-only."""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.contracts.dockerfile import command, lineage, stages
from tests.integration.service.installed import free_port, sealed, serves
from tests.integration.service.live import ROOT
from tests.scale import FULL

STAGES = stages(ROOT / "Dockerfile")
SERVICE = STAGES["service"]
DATA, PREFIX = "/var/lib/meshwright", "/opt/meshwright"


def runs(programs: Path, data: Path, packages: str | None) -> None:
    """The image's command, with its health asked for as Docker does."""
    port = free_port()

    def placed(text: str) -> str:
        return text.replace("8000", str(port)).replace(DATA, str(data)).replace(f"{PREFIX}/bin", str(programs))

    environment = {"PATH": f"{programs}:/usr/bin:/bin"} | ({"PYTHONPATH": packages} if packages else {})
    for stage in lineage(STAGES, "service"):
        own = {name: placed(value) for name, value in stage.environment.items() if name != "PATH"}
        environment.update(own)
    start, health = ([placed(word) for word in command(SERVICE.of(verb)[0])] for verb in ("CMD", "HEALTHCHECK"))
    serves(start, environment, sealed(data), data, health)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("where", ["here", "fresh"] if FULL else ["here"])
def test_the_command_and_the_health_check_work_over_a_read_only_root(where: str, tmp_path: Path) -> None:
    """fresh: after the image's own steps, in an environment of their own, which downloads every package."""
    data = tmp_path / "data"
    data.mkdir()
    if where == "here":
        runs(Path(sys.executable).parent, data, str(ROOT))
        return
    programs = tmp_path / "venv" / "bin"
    venv.create(programs.parent, with_pip=True)
    built(tmp_path / "source", programs)
    runs(programs, data, None)


def built(source: Path, programs: Path) -> None:
    """COPY takes what is named and no more; RUN installs it."""
    source.mkdir()
    for text in (text for stage in lineage(STAGES, "build-service") for text in stage.of("COPY")):
        *names, target = text.split()
        for name in names:
            place = source / (name if target == "./" else target)
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, place)
            else:
                shutil.copy(ROOT / name, place)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["PATH"] = f"{programs}:{environment['PATH']}"
    for text in STAGES["build-service"].of("RUN"):
        subprocess.run(text, shell=True, cwd=source, env=environment, check=True)
