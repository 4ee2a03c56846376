"""The systemd unit without systemd: its command and environment over a read-only root, under its call filter."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.integration.service.installed import free_port, sealed, serves
from tests.integration.service.live import ROOT

UNIT = (ROOT / "deploy" / "systemd" / "meshwright.service").read_text(encoding="utf-8")
HEALTH = "import urllib.request; urllib.request.urlopen('http://127.0.0.1:{}/livez', timeout=2)"


def stated(key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", UNIT, re.MULTILINE)


def test_the_service_works_under_the_filter_of_its_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    programs, port, data = Path(sys.executable).parent, free_port(), tmp_path / "meshwright"
    data.mkdir()
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= dict(line.replace("%S", str(tmp_path)).split("=", 1) for line in stated("Environment"))
    # On the loopback nobody is asked before there is a key; the test makes one first.
    environment["MESHWRIGHT_AUTHENTICATION"] = "required"
    [start] = stated("ExecStart")
    command = [*start.replace("/opt/meshwright/bin", str(programs)).split(), "--port", str(port)]
    filtered = [*sealed(data), sys.executable, "-m", "tests.integration.service.call_filter"]
    health = [sys.executable, "-c", HEALTH.format(port)]
    serves(command, environment, [*filtered, *stated("SystemCallFilter"), "--"], data, health)
