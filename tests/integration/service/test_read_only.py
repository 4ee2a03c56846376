"""A database file, or its folder, that cannot be written: 503 that says so, no change, and all is there afterwards."""

from pathlib import Path

import httpx2
import pytest

from service.constants import CalibrationShelf
from service.storage.database import Database
from service.storage.repositories import Repositories
from service.storage.tables import DEFAULT_PROJECT
from tests.databases.fixtures import Fresh
from tests.integration.service.file_systems import read_only
from tests.integration.service.live import Server, served
from tests.integration.service.test_live import SMALL
from tests.scale import FULL
from tests.unit.service.storage.rows import plan


def filled(url: str) -> str:
    """Where a stored plan is."""

    def fill(work: Repositories) -> str:
        shelf = CalibrationShelf()
        shelf.register_own(work)
        row = plan(shelf.current(work, DEFAULT_PROJECT).id)
        work.plans.add(row)
        return f"/v1/plans/{row.id}"

    database = Database(url)
    try:
        return database.write(fill)
    finally:
        database.close()  # the last connection takes the write-ahead log into the file


def refuses(server: Server, place: str, *, reads: int) -> None:
    with httpx2.Client(base_url=server.url, timeout=60) as http:
        answer = http.post("/v1/plans", json=SMALL)
        assert (answer.status_code, answer.json()["type"]) == (503, "/problems/storage-unavailable"), answer.text
        assert answer.headers["retry-after"]
        assert http.get(place).status_code == reads
        assert http.get("/livez").status_code == 200


@pytest.mark.parametrize(("what", "reads"), [("file", 200), ("folder", 503)] if FULL else [("file", 200)])
def test_what_cannot_be_written_is_left_as_it_is(
    what: str, reads: int, sqlite_databases: Fresh, tmp_path: Path
) -> None:
    """SQLite reads a file that it cannot write, but nothing in a folder where it cannot say that it does."""
    file = tmp_path / "plans.db"
    file.write_bytes(Path(sqlite_databases().removeprefix("sqlite:///")).read_bytes())
    place, before = filled(f"sqlite:///{file}"), file.read_bytes()
    settings = {"MESHWRIGHT_DATABASE_URL": f"sqlite:///{file}"}
    with (
        read_only(file if what == "file" else tmp_path) as sealed,
        served(environment=settings, behind=sealed.inside) as server,
    ):
        refuses(server, place, reads=reads)
        assert any("the database is not available" in line for line in server.lines)
    assert file.read_bytes() == before
    with served(environment=settings) as server:
        assert httpx2.get(server.url + place).status_code == 200
        assert httpx2.post(f"{server.url}/v1/plans", json=SMALL).status_code == 202
