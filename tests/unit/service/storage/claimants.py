"""Those who claim queued solves."""

import threading

from service.storage.database import Database
from service.storage.tables import Solve


def claim(database: Database, owner: str = "a", *, most: int = 10, seconds: float = 30.0) -> list[Solve]:
    return database.write(lambda work: work.solves.claim(owner, verbs=["plan"], most=most, seconds=seconds))


def taken_together(database: Database) -> list[str]:
    """Ids that four claimants take at the same time, two by two, until nothing is left."""
    taken: list[str] = []
    lock = threading.Lock()

    def work(owner: str) -> None:
        while rows := claim(database, owner, most=2):
            with lock:
                taken.extend(row.id for row in rows)

    threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return taken
