"""PostgreSQL's own client programs."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import BinaryIO

from sqlalchemy import URL

from cost_models.errors import SpecError
from service.errors import StorageUnavailable


def run(name: str, url: URL, arguments: Sequence[str], output: BinaryIO | None = None) -> None:
    """Run one on the database at `url`. What it writes is its user's alone; what it says goes to `output`, if any.

    Raises:
        SpecError: it is missing.
        StorageUnavailable: it failed; with what it said.
    """
    program = shutil.which(name)
    if program is None:
        raise SpecError(f"{name} is missing; it comes with PostgreSQL's client programs")
    # The password goes by the environment: arguments are seen by everyone on the machine.
    address = url.set(drivername="postgresql", password=None).render_as_string()
    environment = {**os.environ, **({"PGPASSWORD": str(url.password)} if url.password else {})}
    command = [program, f"--dbname={address}", *arguments]
    done = subprocess.run(
        command,
        env=environment,
        stdout=output or subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
        umask=0o077,
    )
    if done.returncode != 0:
        raise StorageUnavailable(f"{name} failed: {' '.join(done.stderr.decode(errors='replace').split())[:300]}")
