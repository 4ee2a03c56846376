"""Load on one service process: reads of a stored plan and posts that are answered from the store.

    python -m benchmarks.service [--database-url postgresql://USER@HOST/NAME] [--seconds 10] [--connections 8] [--keyed]

Prints requests/s, the latencies, and the CPU seconds of the server for each request, which noise of the machine hardly
touches. The generator runs in this process: give each a core of its own.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

JOB = {
    "model": {"preset": "llama-2-7b"},
    "cluster": {"pools": [{"device": "a100-sxm-80gb", "nodes": 1, "gpus_per_node": 8}]},
    "training": {"method": "full", "sequence_length": 4096, "global_batch_size": 128},
}
SERVE = "import sys, typer; from service.cli import serve; typer.run(serve)"
KEYS = "from service.cli_keys import app; app()"
MOST_PER_MINUTE = "100000000"


@contextmanager
def served(environment: dict[str, str]) -> Iterator[tuple[int, int]]:
    """Port and process id of a service."""
    log = Path(tempfile.mkdtemp()) / "log"
    with log.open("wb") as said:
        process = subprocess.Popen([sys.executable, "-c", SERVE, "--port", "0"], env=environment, stderr=said)
    try:
        while (found := re.search(r"http://[0-9.]+:(\d+)", log.read_text(encoding="utf-8"))) is None:
            if process.poll() is not None:
                raise SystemExit(log.read_text(encoding="utf-8"))
            time.sleep(0.1)
        yield int(found[1]), process.pid
    finally:
        process.terminate()
        process.wait(40)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far (proc(5), fields 14 and 15). [s]"""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def message(method: str, path: str, token: str | None, body: bytes = b"", more: str = "") -> bytes:
    """One HTTP/1.1 request."""
    said = f"Authorization: Bearer {token}\r\n" if token else ""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{said}{more}Content-Length: {len(body)}\r\n"
    return f"{head}Content-Type: application/json\r\n\r\n".encode() + body


async def answered(reader: asyncio.StreamReader) -> tuple[int, str]:
    """Status and head of one answer; its content is read to the end."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    found = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
    if found:
        await reader.readexactly(int(found[1]))
    return int(head.split(" ", 2)[1]), head


async def load(port: int, request: bytes, seconds: float, connections: int) -> list[float]:
    """Latencies of as many requests as are answered in time. [s]"""
    end, delays = time.perf_counter() + seconds, []

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (started := time.perf_counter()) < end:
            writer.write(request)
            status, _ = await answered(reader)
            assert status == 200, status
            delays.append(time.perf_counter() - started)
        writer.close()

    await asyncio.gather(*(one() for _ in range(connections)))
    return sorted(delays)


async def once(port: int, request: bytes) -> str:
    """The head of the answer to one request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    status, head = await answered(reader)
    writer.close()
    assert status == 200, head
    return head


def main() -> None:
    """Measure and print one JSON line for each kind of request."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database-url")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--keyed", action="store_true", help="callers show a key")
    stated = parser.parse_args()
    url = stated.database_url or f"sqlite:///{tempfile.mkdtemp()}/load.db"
    environment = {**os.environ, "MESHWRIGHT_DATABASE_URL": url, "MESHWRIGHT_LOG_FORMAT": "json"}
    environment["MESHWRIGHT_DATABASE_UPGRADE"] = "always"
    token = None
    with served(environment) as (port, pid):
        if stated.keyed:
            arguments = ["create", "load", "--scope", "plan", "--requests-per-minute", MOST_PER_MINUTE, "--json"]
            made = subprocess.run(
                [sys.executable, "-c", KEYS, *arguments], env=environment, capture_output=True, text=True, check=True
            )
            token = json.loads(made.stdout)["token"]
        body = json.dumps(JOB).encode()
        head = asyncio.run(once(port, message("POST", "/v1/plans", token, body, "Prefer: wait=60\r\n")))
        found = re.search(r"location: (\S+)", head, re.IGNORECASE)
        assert found is not None
        for what, request in (
            ("read", message("GET", found[1], token)),
            ("cached post", message("POST", "/v1/plans", token, body)),
        ):
            before, started = cpu_seconds(pid), time.perf_counter()
            delays = asyncio.run(load(port, request, stated.seconds, stated.connections))
            figures = {
                "what": what,
                "database": url.partition(":")[0],
                "keyed": stated.keyed,
                "requests_per_second": round(len(delays) / (time.perf_counter() - started), 1),
                "p50_ms": round(1000 * delays[len(delays) // 2], 2),
                "p99_ms": round(1000 * delays[int(len(delays) * 0.99)], 2),
                "server_cpu_ms_per_request": round(1000 * (cpu_seconds(pid) - before) / len(delays), 3),
            }
            print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
