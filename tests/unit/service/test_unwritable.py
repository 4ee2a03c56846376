"""A database that is full or cannot be written: 503 that says so, what is stored is still read, and nothing is lost."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event, text
from starlette.testclient import TestClient

from service.reading import CONFIGURATION_EXAMPLE, JOB_EXAMPLE
from service.storage.database import Database
from tests.databases.fixtures import Fresh
from tests.unit.service.client import JOB, client

WAIT = {"Prefer": "wait=20"}
ESTIMATE = {**JOB_EXAMPLE, "configuration": CONFIGURATION_EXAMPLE}


@contextmanager
def every_connection(database: Database, worse: str, good: str) -> Iterator[None]:
    """Each use of a connection begins with a statement: `worse` while this lasts, then `good`."""
    now = [worse]

    def say(connection: Any, *_: Any) -> None:
        cursor = connection.cursor()
        cursor.execute(now[0])
        cursor.close()
        connection.commit()

    event.listen(database.engine, "checkout", say)
    try:
        yield
    finally:
        now[0] = good


def refused(answer: Any) -> None:
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/storage-unavailable"), answer.text
    assert answer.headers["retry-after"]
    assert "away, full" in answer.json()["detail"]


def writes_are_refused(http: TestClient, place: str) -> None:
    refused(http.post("/v1/plans", json={**JOB, "objective": "memory"}))
    refused(http.post("/v1/estimates", json=ESTIMATE))
    refused(http.put(f"{place}/tags/best"))
    refused(http.post("/v1/jobs", json={"name": "pretraining", "plan_id": place.rpartition("/")[2]}))
    refused(http.post(f"{place}/measurements", json={"outcome": "ok", "step_seconds": 3.5}))


def reads_go_on(http: TestClient, place: str) -> None:
    assert http.get(place).status_code == 200
    assert http.post("/v1/plans", json=JOB).status_code == 200, "it is stored"
    assert http.get("/v1/plans").status_code == 200
    assert http.get("/livez").status_code == 200


def ready(http: TestClient) -> bool:
    """Whether the service says that it can be used; looked at anew."""
    http.app.state.runtime.readiness._probed_at -= 60  # type: ignore[attr-defined]
    answer = http.get("/readyz")
    check = answer.json()["checks"]["database"]
    well = bool(answer.is_success)
    assert check["ready"] == well, "nothing else is wrong"
    assert check["ready"] or check["detail"] == "it takes no writes: it is full or read-only"
    return well


def answered_from_the_store(http: TestClient, place: str) -> None:
    """What needs no write but to remember a key."""
    for key in ("known", "new"):
        answer = http.post("/v1/plans", json=JOB, headers={"Idempotency-Key": key})
        assert (answer.status_code, answer.headers.get("location")) == (200, place), answer.text
    other = http.post("/v1/plans", json={**JOB, "objective": "memory"}, headers={"Idempotency-Key": "known"})
    assert (other.status_code, other.json()["type"]) == (422, "/problems/idempotency-key-reused")


def test_a_database_that_cannot_be_written(databases: Fresh) -> None:
    with client(database_url=databases()) as http:
        place = http.post("/v1/plans", json=JOB, headers={**WAIT, "Idempotency-Key": "known"}).headers["location"]
        assert ready(http)
        database: Database = http.app.state.runtime.database  # type: ignore[attr-defined]
        sqlite = database.engine.dialect.name == "sqlite"
        setting = "PRAGMA query_only" if sqlite else "SET default_transaction_read_only"
        with every_connection(database, f"{setting}=on", f"{setting}=off"):
            assert not ready(http), "before any request has met it"
            writes_are_refused(http, place)
            reads_go_on(http, place)
            answered_from_the_store(http, place)
            assert not ready(http)
        assert ready(http)
        assert http.post("/v1/plans", json={**JOB, "objective": "memory"}, headers=WAIT).status_code == 200
        assert http.put(f"{place}/tags/best").status_code == 200


def test_a_full_disk(sqlite_databases: Fresh) -> None:
    with client(database_url=sqlite_databases()) as http:
        place = http.post("/v1/plans", json=JOB, headers={**WAIT, "Idempotency-Key": "known"}).headers["location"]
        database: Database = http.app.state.runtime.database  # type: ignore[attr-defined]
        with database.engine.connect() as connection:
            pages = connection.execute(text("PRAGMA page_count")).scalar_one()
        with every_connection(database, f"PRAGMA max_page_count={pages}", "PRAGMA max_page_count=1000000"):
            waiting: list[str] = []
            while (
                answer := http.post("/v1/plans", json={**JOB, "objective_tolerance": 0.001 * len(waiting)})
            ).is_success:
                waiting.append(answer.headers["location"])
                assert len(waiting) < 100, "the disk is not full"
            refused(answer)
            reads_go_on(http, place)
            answered_from_the_store(http, place)
            assert not ready(http)
        assert ready(http)
        made = {place: http.get(place, headers=WAIT).status_code for place in waiting}
        assert set(made.values()) <= {200}, "what was accepted is made when there is room again"
        with database.engine.connect() as connection:
            assert connection.execute(text("PRAGMA integrity_check")).scalar_one() == "ok"
