"""The Dockerfile's steps without Docker: what it runs, with the environment it sets, over a root that is read-only."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest

from tests.contracts.dockerfile import command, lineage, stages
from tests.integration.service.live import ROOT
from tests.scale import FULL

STAGES = stages(ROOT / "Dockerfile")
SERVICE = STAGES["service"]
DATA, PREFIX = "/var/lib/meshwright", "/opt/meshwright"
SEALED = 'mount --bind "$0" "$0" && mount -o remount,bind,ro / && exec "$@"'
"""Everything read-only but the folder of the data, as with `docker run --read-only --volume ...`; not even /tmp."""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def sealed(data: Path) -> list[str]:
    """What a command is put behind; nothing where this machine lets nobody make a file system of their own."""
    wrapper = ["unshare", "--map-root-user", "--mount", "sh", "-c", SEALED, str(data)]
    usable = shutil.which("unshare") and subprocess.run([*wrapper, "true"], capture_output=True, check=False)
    return wrapper if usable and usable.returncode == 0 else []


def runs(programs: Path, data: Path, packages: str | None) -> None:
    """Start the image's command, ask for its health as Docker does, make a key, end it."""
    port = free_port()

    def placed(text: str) -> str:
        return text.replace("8000", str(port)).replace(DATA, str(data)).replace(f"{PREFIX}/bin", str(programs))

    environment = {"PATH": f"{programs}:/usr/bin:/bin"} | ({"PYTHONPATH": packages} if packages else {})
    for stage in lineage(STAGES, "service"):
        own = {name: placed(value) for name, value in stage.environment.items() if name != "PATH"}
        environment.update(own)
    wrapper = sealed(data)
    process = subprocess.Popen(
        [*wrapper, *map(placed, command(SERVICE.of("CMD")[0]))],
        env=environment, cwd=data, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        health = [placed(word) for word in command(SERVICE.of("HEALTHCHECK")[0])]
        asked = [subprocess.run(health, env=environment, capture_output=True, check=False)]
        deadline = time.monotonic() + 60
        while asked[-1].returncode and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.3)
            asked.append(subprocess.run(health, env=environment, capture_output=True, check=False))
        assert asked[-1].returncode == 0, asked[-1].stderr
        assert asked[0].returncode == 1, "before it was up"
        create = [
            *wrapper,
            "python",
            "-c",
            "from service.cli_keys import app; app()",
            "create",
            "first",
            "--scope",
            "admin",
        ]
        made = subprocess.run(create, env=environment, capture_output=True, text=True, check=False)
        assert made.stdout.startswith("mwk_"), made.stderr
    finally:
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=40)
    assert process.returncode in {0, -signal.SIGTERM}, said
    assert "Traceback" not in said
    assert subprocess.run(health, env=environment, capture_output=True, check=False).returncode == 1
    assert {path.name for path in data.iterdir()} <= {"meshwright.db", "meshwright.db-wal", "meshwright.db-shm"}


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
