"""The service as an installation starts it: with its command, its environment, a root that is read-only, no rights."""

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx2

from tests.integration.service.file_systems import as_user
from tests.integration.service.test_live import SMALL, WAIT

SEALED = 'mount --bind "$0" "$0" && mount -o remount,bind,ro / && exec "$@"'
"""Everything read-only but the folder of the data, as with `docker run --read-only --volume ...`; not even /tmp."""
KEYS = ("python", "-c", "from service.cli_keys import app; app()", "create", "first", "--scope", "admin")


USER = 10001


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def sealed(data: Path) -> list[str]:
    """What a command is put behind; nothing where this machine lets nobody make a file system of their own."""
    wrapper = ["unshare", "--map-root-user", "--mount", "sh", "-c", SEALED, str(data), *as_user(USER), "--"]
    if shutil.which("unshare") is None:
        return []
    found = subprocess.run([*wrapper, "id", "--user"], capture_output=True, text=True, check=False)
    assert found.returncode or found.stdout == f"{USER}\n"
    return [] if found.returncode else wrapper


def serves(
    command: Sequence[str], environment: Mapping[str, str], wrapper: Sequence[str], data: Path, health: Sequence[str]
) -> None:
    """Start it, ask for its health until it is well, make a key, have a plan made, end it."""
    port = int(command[command.index("--port") + 1])
    process = subprocess.Popen(
        [*wrapper, *command], env=environment, cwd=data, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        asked = [subprocess.run(health, env=environment, capture_output=True, check=False)]
        deadline = time.monotonic() + 60
        while asked[-1].returncode and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.3)
            asked.append(subprocess.run(health, env=environment, capture_output=True, check=False))
        assert asked[-1].returncode == 0, asked[-1].stderr
        assert asked[0].returncode == 1, "before it was up"
        made = subprocess.run([*wrapper, *KEYS], env=environment, capture_output=True, text=True, check=False)
        assert made.stdout.startswith("mwk_"), made.stderr
        key = {"Authorization": f"Bearer {made.stdout.splitlines()[0]}"}
        place = f"http://127.0.0.1:{port}/v1/plans"
        assert httpx2.post(place, json=SMALL).status_code == 401
        planned = httpx2.post(place, json=SMALL, headers={**WAIT, **key}, timeout=90)
        assert planned.status_code == 200, planned.text
    finally:
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=40)
    assert process.returncode in {0, -signal.SIGTERM}, said
    assert "Traceback" not in said
    assert subprocess.run(health, env=environment, capture_output=True, check=False).returncode == 1
    assert {path.name.removeprefix("meshwright.db") for path in data.iterdir()} <= {"", "-wal", "-shm", ".lock"}
