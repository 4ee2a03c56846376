"""Connections to the database that are cut under load, at any moment: no request fails, none is done twice."""

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx2
from sqlalchemy import create_engine, select, text

from service.storage.database import Database
from service.storage.tables import StoredMeasurement
from tests.databases.fixtures import Fresh
from tests.integration.service.live import Server, served
from tests.integration.service.test_live import SMALL
from tests.integration.service.test_survival import BRISK, all_answered, solves
from tests.scale import scaled

NAME = "meshwright-under-test"
CUT = text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = :name AND pid = :pid")
OPEN = text("SELECT pid FROM pg_stat_activity WHERE application_name = :name")


@contextmanager
def cutting(url: str) -> Iterator[list[int]]:
    """Ends one connection after another, in whatever state it is; which ones."""
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
    chance, over, cut = random.Random(3), threading.Event(), list[int]()

    def run() -> None:
        with engine.connect() as connection:
            while not over.wait(chance.uniform(0.02, 0.15)):
                pids = sorted(connection.scalars(OPEN, {"name": NAME}))
                if pids and connection.scalar(CUT, {"name": NAME, "pid": chance.choice(pids)}):
                    cut.append(pids[0])

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield cut
    finally:
        over.set()
        thread.join()
        engine.dispose()


def asked(server: Server, numbers: range) -> list[str]:
    with httpx2.Client(base_url=server.url, timeout=60) as http:
        places = []
        for n in numbers:
            answer = http.post(
                "/v1/plans", json={**SMALL, "training": {"sequence_length": 128 + n, "global_batch_size": 8}}
            )
            assert answer.status_code in {200, 202}, answer.text
            places.append(answer.headers["location"])
    return places


def measured(server: Server, place: str, times: int) -> list[str]:
    """Without keys: the service alone sees to it that each is kept once."""
    with httpx2.Client(base_url=server.url, timeout=60) as http:
        ids = []
        for n in range(times):
            answer = http.post(f"{place}/measurements", json={"outcome": "ok", "step_seconds": 1.0 + n})
            broken = [line[-3000:] for line in server.lines if "Traceback" in line]
            assert answer.status_code == 201, (answer.text, broken)
            ids.append(answer.json()["id"])
    return ids


def test_cut_connections_are_replaced_and_nothing_is_done_twice(postgresql_databases: Fresh) -> None:
    url, count = postgresql_databases(), scaled(10, 100)
    settings = {**BRISK, "MESHWRIGHT_DATABASE_URL": f"{url}&application_name={NAME}"}
    with served(environment=settings) as server, ThreadPoolExecutor(2) as threads:
        [first] = asked(server, range(800, 801))
        all_answered(server, [first])
        with cutting(url) as cut:
            posts = threads.submit(asked, server, range(count))
            runs = threads.submit(measured, server, first, 5 * count)
            places, ids = [first, *posts.result()], runs.result()
        all_answered(server, places)
    assert len(cut) >= scaled(5, 50), "connections were cut"
    kept = solves(url)
    assert sorted(f"/v1/plans/{solve.id}" for solve in kept) == sorted(places)
    assert {(solve.state, solve.deaths) for solve in kept} == {("done", 0)}
    database = Database(url)
    rows = database.read(lambda work: work.session.scalars(select(StoredMeasurement.id)).all())
    database.close()
    assert sorted(rows) == sorted(ids)
