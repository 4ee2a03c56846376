"""A served application in a process of its own, on a free port of the loopback."""

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.databases import ambient

ROOT = Path(__file__).parents[3]
COMMAND = "import sys, typer; from service.cli import serve; typer.run(serve)"


class Server:
    """A running server: its address, its process, and what it has said so far."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.lines: list[str] = []
        self.url = ""
        assert process.stderr is not None
        for line in process.stderr:
            self.lines.append(line)
            if found := re.search(r"http://[0-9.]+:[0-9]+", line):
                self.url = found.group()
                break
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        # Solvers that outlive a killed server for a moment hold the pipe open until the test closes it.
        with suppress(ValueError):
            self.lines.extend(self.process.stderr or ())


@contextmanager
def served(*arguments: str, environment: dict[str, str] | None = None, behind: Sequence[str] = ()) -> Iterator[Server]:
    """Serve until the block ends, behind a command if one is named; then SIGTERM, as systemd and Kubernetes do."""
    own = "MESHWRIGHT_DATABASE_URL"
    database = {} if own in (environment or {}) else {own: ambient.fresh()}
    process = subprocess.Popen(
        [*behind, sys.executable, "-c", COMMAND, "--port", "0", *arguments],
        cwd=ROOT,
        env={
            "PYTHONPATH": str(ROOT),
            "PATH": "/bin",
            "MESHWRIGHT_LOG_FORMAT": "json",
            **database,
            **(environment or {}),
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        server = Server(process)
        assert server.url, "".join(server.lines)
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(40)
        finally:
            process.kill()
            process.wait()
            if process.stderr is not None:
                process.stderr.close()
