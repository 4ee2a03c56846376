"""Many distinct plan requests at once: is every one answered, and does the event loop go on meanwhile?

    python -m benchmarks.burst [--requests 50] [--solvers 1] [--database sqlite|postgresql|URL]

Asks one service for as many plans of a 7B model, each another job, all at the same time, and waits until all are made.
Prints how often each status came, how long it took, how late the event loop was while it lasted (the service's own
histogram), and how long `/livez` took meanwhile, from outside.
"""

import argparse
import asyncio
import json
import re
import time
from collections import Counter
from typing import Any, Final

from benchmarks.served import JOB, Served, answered, database, message, once, percentile, served

STALLS: Final = re.compile(r'meshwright_event_loop_stall_seconds_bucket\{le="([^"]+)"\} (\S+)')
WAIT: Final = "Prefer: wait=60\r\n"


def job(number: int) -> bytes:
    """Another job for each number."""
    training = {**JOB["training"], "global_batch_size": 64 + 8 * (number % 10), "sequence_length": 1024 + 64 * number}
    return json.dumps({**JOB, "training": training}).encode()


async def planned(port: int, body: bytes, statuses: Counter[int]) -> None:
    """Ask, and look again until the plan is made or refused."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(message("POST", "/v1/plans", None, body, WAIT))
    found = await answered(reader)
    statuses[found.status] += 1
    again = message("GET", found.location, None, more=WAIT) if found.status == 202 else b""
    while found.status == 202:
        writer.write(again)
        found = await answered(reader)
        statuses[found.status] += 1
    writer.close()


async def probed(port: int, delays: list[float]) -> None:
    """Ask `/livez` over and over."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        while True:
            started = time.perf_counter()
            writer.write(message("GET", "/livez", None))
            assert (await answered(reader)).status == 200
            delays.append(time.perf_counter() - started)
            await asyncio.sleep(0.02)
    finally:
        writer.close()


async def stalls(port: int) -> dict[float, float]:
    """Upper edge -> beats of the event loop that were at most so late. [s]"""
    text = (await once(port, message("GET", "/metrics", None))).content.decode()
    return {float(edge.replace("+Inf", "inf")): float(count) for edge, count in STALLS.findall(text)}


async def burst(service: Served, requests: int) -> dict[str, Any]:
    """What came of it."""
    while (await once(service.port, message("GET", "/readyz", None))).status != 200:
        await asyncio.sleep(0.1)
    before, started, statuses, delays = await stalls(service.port), time.perf_counter(), Counter[int](), list[float]()
    cpu = service.cpu_seconds()
    probe = asyncio.create_task(probed(service.port, delays))
    await asyncio.gather(*(planned(service.port, job(number), statuses) for number in range(requests)))
    probe.cancel()
    late = {edge: count - before[edge] for edge, count in (await stalls(service.port)).items()}
    beats = max(late.values())
    return {
        "requests": requests,
        "statuses": dict(statuses),
        "seconds": round(time.perf_counter() - started, 1),
        "server_cpu_seconds": round(service.cpu_seconds() - cpu, 2),
        "beats": beats,
        "stall_p50_at_most_ms": 1000 * min(edge for edge, count in late.items() if count >= 0.5 * beats),
        "stall_p99_at_most_ms": 1000 * min(edge for edge, count in late.items() if count >= 0.99 * beats),
        "livez_p50_ms": round(1000 * percentile(sorted(delays), 0.5), 2),
        "livez_p99_ms": round(1000 * percentile(sorted(delays), 0.99), 2),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=50)
    parser.add_argument("--solvers", type=int, default=1)
    parser.add_argument("--database", default="sqlite")
    stated = parser.parse_args()
    with database(stated.database) as url, served(url, solver_processes=str(stated.solvers)) as service:
        found = asyncio.run(burst(service, stated.requests))
    print(json.dumps({"database": url.partition(":")[0], "solvers": stated.solvers, **found}))


if __name__ == "__main__":
    main()
