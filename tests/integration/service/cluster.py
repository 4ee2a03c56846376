"""A Dask scheduler and workers, each a process of its own."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.service.live import ROOT


class Cluster:
    """A running scheduler; workers come and go."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "scheduler.json"
        self.processes: list[subprocess.Popen[bytes]] = []

    def scheduler(self, port: str = "0") -> "subprocess.Popen[bytes]":
        where = ("--host", "127.0.0.1", "--port", port, "--no-dashboard", "--scheduler-file", str(self.file))
        return self.run("dask_scheduler", *where)

    def restart(self, scheduler: "subprocess.Popen[bytes]", *, workers: int) -> "subprocess.Popen[bytes]":
        """The scheduler dies, and another one takes its place with workers of its own."""
        port = self.address.rpartition(":")[2]
        scheduler.kill()
        scheduler.wait()
        found = self.scheduler(port)
        for _ in range(workers):
            self.worker()
        return found

    def run(self, module: str, *arguments: str) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.{module}", *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.processes.append(process)
        return process

    def worker(self) -> "subprocess.Popen[bytes]":
        return self.run(
            "dask_worker", "--scheduler-file", str(self.file), "--nthreads", "1", "--no-nanny", "--no-dashboard"
        )

    @property
    def address(self) -> str:
        """As the setting spells it."""
        deadline = time.monotonic() + 60
        while not self.file.exists() or not self.file.read_text():
            assert time.monotonic() < deadline, "the scheduler did not start"
            time.sleep(0.05)
        return str(json.loads(self.file.read_text())["address"]).replace("tcp://", "dask://")


@contextmanager
def cluster(folder: Path, *, workers: int) -> Iterator[Cluster]:
    found = Cluster(folder)
    found.scheduler()
    try:
        for _ in range(workers):
            found.worker()
        yield found
    finally:
        for process in reversed(found.processes):
            process.kill()
            process.wait()
