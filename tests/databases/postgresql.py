"""A PostgreSQL server in a temporary folder, on a port of its own, run by a user that is not root."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

USER = "meshwright"
PATHS = ("/usr/lib/postgresql", "/usr/pgsql", "/opt/homebrew/opt/postgresql")


class ServerMissing(Exception):
    """There is no PostgreSQL on this machine."""


def program(name: str) -> str:
    """Where one of the server's programs is; distributions keep them off the PATH."""
    found = shutil.which(name)
    places = [path for root in PATHS for path in sorted(Path(root).glob(f"**/bin/{name}"), reverse=True)]
    if found is None and not places:
        raise ServerMissing(f"PostgreSQL's {name} is not installed")
    return found or str(places[0])


class Server:
    """A running server."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port

    def url(self, database: str) -> str:
        """The address of one of its databases."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        # These databases live as long as a test: they survive a crash of the server, none of the machine.
        quick = "fsync=off full_page_writes=off wal_level=minimal max_wal_senders=0 autovacuum=off"
        settings = [*quick.split(), "listen_addresses=127.0.0.1", "max_connections=100"]
        options = f"-p {self.port} -k {self.folder} " + " ".join(f"-c {setting}" for setting in settings)
        _run(["pg_ctl", "-D", str(self.folder / "data"), "-o", options, "-l", str(self.folder / "log"), "-w", "start"])

    def stop(self, mode: str = "fast") -> None:
        _run(["pg_ctl", "-D", str(self.folder / "data"), "-m", mode, "-w", "stop"])


@contextmanager
def server() -> Iterator[Server]:
    """A server for as long as the block lasts."""
    folder = Path(tempfile.mkdtemp(prefix="meshwright-pg-", dir="/tmp"))  # sockets need a short path
    try:
        if (user := _other_user()) is not None:
            shutil.chown(folder, user)
        _run(["initdb", "-D", str(folder / "data"), "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "-N"])
        found = Server(folder, _free_port())
        found.start()
        try:
            yield found
        finally:
            found.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(command: list[str]) -> None:
    """Run one of the server's programs as a user that it accepts."""
    command = [program(command[0]), *command[1:]]
    deadline = time.monotonic() + 60
    # pg_ctl's child keeps our pipes open: what it says goes to a file.
    with tempfile.TemporaryFile() as said:
        done = subprocess.run(
            command,
            user=_other_user(),
            cwd="/",
            stdout=said,
            stderr=said,
            timeout=deadline - time.monotonic(),
            check=False,
        )
        said.seek(0)
        assert done.returncode == 0, said.read().decode(errors="replace")


def _other_user() -> str | None:
    """PostgreSQL refuses to run as root."""
    return "postgres" if os.geteuid() == 0 else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
