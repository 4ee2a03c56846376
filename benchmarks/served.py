"""A service in a process of its own, for the measurements of it; and just enough HTTP to ask it quickly."""

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.databases import postgresql

JOB: Final[dict[str, Any]] = {
    "model": {"preset": "llama-2-7b"},
    "cluster": {"pools": [{"device": "a100-sxm-80gb", "nodes": 1, "gpus_per_node": 8}]},
    "training": {"method": "full", "sequence_length": 4096, "global_batch_size": 128},
}
SERVE: Final = "import sys, typer; from service.cli import serve; typer.run(serve)"
KEYS: Final = "from service.cli_keys import app; app()"
MOST_PER_MINUTE: Final = "100000000"


@dataclass(frozen=True, slots=True)
class Served:
    """A running service."""

    port: int
    pid: int
    environment: dict[str, str]

    def cpu_seconds(self) -> float:
        """User and system time of its process so far, without its solvers' (proc(5), fields 14 and 15). [s]"""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def key(self) -> str:
        """A new API key that may ask as often as it likes."""
        arguments = ["create", "load", "--scope", "plan", "--requests-per-minute", MOST_PER_MINUTE, "--json"]
        made = subprocess.run(
            [sys.executable, "-c", KEYS, *arguments], env=self.environment, capture_output=True, text=True, check=True
        )
        return str(json.loads(made.stdout)["token"])


@contextmanager
def database(kind: str) -> Iterator[str]:
    """The address of an empty database: sqlite, or postgresql (a server started for this); or the address itself."""
    if kind == "sqlite":
        yield f"sqlite:///{tempfile.mkdtemp()}/load.db"
    elif kind == "postgresql":
        with postgresql.server() as found:
            yield found.url("postgres")
    else:
        yield kind


@contextmanager
def served(url: str, *, core: int | None = None, **settings: str) -> Iterator[Served]:
    """Serve from the database at `url`, on one core if it is named, with more settings of the service."""
    own = {"database_url": url, "database_upgrade": "always", "log_format": "json", **settings}
    environment = {**os.environ, **{f"MESHWRIGHT_{name.upper()}": value for name, value in own.items()}}
    log = Path(tempfile.mkdtemp()) / "log"
    pinned = [] if core is None else ["taskset", "--cpu-list", str(core)]
    with ExitStack() as stack:
        said = stack.enter_context(log.open("wb"))
        process = subprocess.Popen([*pinned, sys.executable, "-c", SERVE, "--port", "0"], env=environment, stderr=said)
        stack.callback(process.wait, 40)
        stack.callback(process.terminate)
        while (found := re.search(r"http://[0-9.]+:(\d+)", log.read_text(encoding="utf-8"))) is None:
            if process.poll() is not None:
                raise SystemExit(log.read_text(encoding="utf-8"))
            time.sleep(0.1)
        yield Served(int(found[1]), process.pid, environment)


def message(method: str, path: str, token: str | None, body: bytes = b"", more: str = "") -> bytes:
    """One HTTP/1.1 request."""
    said = f"Authorization: Bearer {token}\r\n" if token else ""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{said}{more}Content-Length: {len(body)}\r\n"
    return f"{head}Content-Type: application/json\r\n\r\n".encode() + body


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer."""

    status: int
    head: str
    content: bytes

    @property
    def location(self) -> str:
        """Where the answer is."""
        found = re.search(r"location: (\S+)", self.head, re.IGNORECASE)
        assert found is not None, self.head
        return found[1]


async def answered(reader: asyncio.StreamReader) -> Answer:
    """One answer, read to its end."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    found = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
    content = await reader.readexactly(int(found[1])) if found else b""
    return Answer(int(head.split(" ", 2)[1]), head, content)


async def once(port: int, request: bytes) -> Answer:
    """The answer to one request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    found = await answered(reader)
    writer.close()
    return found


def percentile(ascending: Sequence[float], share: float) -> float:
    """The value that `share` of them do not exceed."""
    return ascending[min(len(ascending) - 1, int(len(ascending) * share))]
