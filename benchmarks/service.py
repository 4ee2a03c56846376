"""Load on one service process: reads of a stored plan and posts that are answered from the store.

    python -m benchmarks.service [--database sqlite|postgresql|URL] [--seconds 10] [--keyed] [--core 0]

Prints one JSON line for each kind of request: requests/s, latencies, and the CPU seconds of the server for each
request, which noise of the machine hardly touches. With `--core` the server has that core and the generator, in this
process, the others.
"""

import argparse
import asyncio
import json
import os
import time
from collections import Counter

from benchmarks.served import JOB, answered, database, message, once, percentile, served


async def load(port: int, request: bytes, seconds: float, connections: int) -> tuple[list[float], Counter[int]]:
    """Latencies of as many requests as are answered in time [s], and how often each status came."""
    end, delays, statuses = time.perf_counter() + seconds, list[float](), Counter[int]()

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (started := time.perf_counter()) < end:
            writer.write(request)
            statuses[(await answered(reader)).status] += 1
            delays.append(time.perf_counter() - started)
        writer.close()

    await asyncio.gather(*(one() for _ in range(connections)))
    return sorted(delays), statuses


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", default="sqlite")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--keyed", action="store_true", help="callers show a key")
    parser.add_argument("--core", type=int, help="the server's")
    stated = parser.parse_args()
    if stated.core is not None:
        os.sched_setaffinity(0, os.sched_getaffinity(0) - {stated.core})
    with database(stated.database) as url, served(url, core=stated.core) as service:
        token = service.key() if stated.keyed else None
        body = json.dumps(JOB).encode()
        made = asyncio.run(once(service.port, message("POST", "/v1/plans", token, body, "Prefer: wait=60\r\n")))
        assert made.status == 200, made.head
        for what, request in (
            ("read", message("GET", made.location, token)),
            ("cached post", message("POST", "/v1/plans", token, body)),
        ):
            asyncio.run(load(service.port, request, 0.5, stated.connections))  # warm
            before, started = service.cpu_seconds(), time.perf_counter()
            delays, statuses = asyncio.run(load(service.port, request, stated.seconds, stated.connections))
            seconds, cpu = time.perf_counter() - started, service.cpu_seconds() - before
            figures = {
                "what": what,
                "database": url.partition(":")[0],
                "keyed": stated.keyed,
                "connections": stated.connections,
                "statuses": dict(statuses),
                "requests_per_second": round(len(delays) / seconds, 1),
                "p50_ms": round(1000 * percentile(delays, 0.5), 2),
                "p99_ms": round(1000 * percentile(delays, 0.99), 2),
                "server_cpu_ms_per_request": round(1000 * cpu / len(delays), 3),
                "server_core_share": round(cpu / seconds, 2),
            }
            print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
