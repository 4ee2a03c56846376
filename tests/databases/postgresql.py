"""A PostgreSQL server in a temporary folder, on a port of its own, run by a user that is not root."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
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
    """A running server: sockets, log and write-ahead log in `folder`; its programs run behind a command, if any."""

    def __init__(self, folder: Path, port: int, data: Path | None = None, behind: Sequence[str] = ()) -> None:
        self.folder = folder
        self.data = data or folder / "data"
        self.port = port
        self.behind = behind

    def url(self, database: str) -> str:
        """The address of one of its databases."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        # These databases live as long as a test: they survive a crash of the server, none of the machine.
        quick = "fsync=off full_page_writes=off wal_level=minimal max_wal_senders=0 autovacuum=off"
        settings = [*quick.split(), "listen_addresses=127.0.0.1", "max_connections=100"]
        options = f"-p {self.port} -k {self.folder} " + " ".join(f"-c {setting}" for setting in settings)
        self.run("pg_ctl", "-D", str(self.data), "-o", options, "-l", str(self.folder / "log"), "-w", "start")

    def stop(self, mode: str = "fast") -> None:
        self.run("pg_ctl", "-D", str(self.data), "-m", mode, "-w", "stop")

    def made(self) -> None:
        """Make its files."""
        settings = ["-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "-N"]
        self.run("initdb", "-D", str(self.data), "--waldir", str(self.folder / "wal"), *settings)

    def run(self, name: str, *arguments: str) -> None:
        """Run one of its programs, as a user that it accepts."""
        user = None if self.behind else _other_user()
        # pg_ctl's child keeps our pipes open: what it says goes to a file.
        with tempfile.TemporaryFile() as said:
            done = subprocess.run(
                [*self.behind, program(name), *arguments],
                user=user, cwd="/", stdout=said, stderr=said, timeout=60, check=False,
            )  # fmt: skip
            said.seek(0)
            assert done.returncode == 0, said.read().decode(errors="replace")


@contextmanager
def server(data: Path | None = None, behind: Sequence[str] = ()) -> Iterator[Server]:
    """A server for as long as the block lasts."""
    folder = Path(tempfile.mkdtemp(prefix="meshwright-pg-", dir="/tmp"))  # sockets need a short path
    try:
        if not behind and (user := _other_user()) is not None:
            shutil.chown(folder, user)
        found = Server(folder, _free_port(), data, behind)
        found.made()
        found.start()
        try:
            yield found
        finally:
            found.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _other_user() -> str | None:
    """PostgreSQL refuses to run as root."""
    return "postgres" if os.geteuid() == 0 else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
