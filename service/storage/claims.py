"""Who uses an embedded database: an advisory lock on a file beside it, which ends with the process that holds it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import Engine

from service.errors import Conflict

OWNER_ONLY: Final = 0o600
SUFFIX: Final = ".lock"


def file_of(engine: Engine) -> Path | None:
    """The file of an embedded database; None: it is a server's."""
    return Path(str(engine.url.database)) if engine.dialect.name == "sqlite" else None


def owned(file: Path) -> int:
    """Open a file, made for its owner alone where it is not there yet; its descriptor.

    What root makes belongs to the owner of the folder: the service that will use it, whose rights are its user's.

    Raises:
        OSError: it can be neither opened nor made.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, OWNER_ONLY)
    except FileExistsError:
        return os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    folder = file.parent.stat()
    if os.geteuid() == 0 and folder.st_uid != 0:
        os.fchown(descriptor, folder.st_uid, folder.st_gid)
    return descriptor


class Claim:
    """A service's word that it uses a database; a restore waits for none to be left."""

    def __init__(self, file: Path) -> None:
        """Say so. `alone`: no other service has.

        Raises:
            OSError: the file beside the database cannot be made.
        """
        self._descriptor = owned(_beside(file))
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.alone = True
        except BlockingIOError:
            self.alone = False
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    def release(self) -> None:
        """Use it no longer."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1


@contextmanager
def nobody_else(file: Path) -> Iterator[None]:
    """Keep services away from a database.

    Raises:
        Conflict: one uses it.
    """
    descriptor = owned(_beside(file))
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(f"a service uses {file}; stop it first") from None
        yield
    finally:
        os.close(descriptor)


def _beside(file: Path) -> Path:
    return file.with_name(file.name + SUFFIX)
