"""`meshwright db` beside a service at work; and a backup of it restored, as docs/operating.md says, after a crash."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from service.storage import upgrade
from service.storage.database import Database
from tests.databases.fixtures import Fresh, own_database
from tests.integration.service.live import ROOT, served
from tests.integration.service.test_live import SMALL
from tests.integration.service.test_stuck_estimate import frozen
from tests.integration.service.test_survival import BRISK, all_answered, post, until
from tests.scale import FULL

OPERATING = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")


def db(url: str, *arguments: str) -> Any:
    """`meshwright db ... --json`."""
    command = [sys.executable, "-c", "from service.cli_db import app; app()", *arguments, "--url", url, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(params=["sqlite", "postgresql"] if FULL else ["sqlite"])
def url(request: pytest.FixtureRequest) -> str:
    """A database that nobody else uses."""
    if request.param == "sqlite":
        make: Fresh = request.getfixturevalue("sqlite_databases")
        return make()
    return own_database(request.getfixturevalue("postgresql_server"))


def test_a_backup_of_a_service_at_work_is_restored(url: str, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    settings = {**BRISK, "MESHWRIGHT_DATABASE_URL": url}
    with served(environment=settings) as server, httpx2.Client(base_url=server.url, timeout=60) as http:
        made = post(server, 2)
        all_answered(server, made)
        contents = {one: http.get(one).content for one in made}
        assert http.post(f"{made[0]}/measurements", json={"outcome": "ok", "step_seconds": 2.5}).status_code == 201
        with frozen(server):
            waiting = post(server, 2, start=10)
            assert db(url, "backup", str(backup))["bytes"] > 0
            assert set(db(url, "prune", "--older-than-days", "1").values()) == {0}
            upgraded = db(url, "upgrade")
            assert upgraded["from"] == upgraded["to"]
            later = post(server, 2, start=20)
        all_answered(server, waiting + later)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
    assert "meshwright db restore" in OPERATING
    assert db(url, "restore", str(backup))["migration"] == upgraded["to"]
    with served(environment=settings) as server, httpx2.Client(base_url=server.url, timeout=60) as http:
        all_answered(server, waiting)
        assert {one: http.get(one).content for one in made} == contents
        assert [run["step_seconds"] for run in http.get(f"{made[0]}/measurements").json()["items"]] == [2.5]
        assert {http.get(one).status_code for one in later} == {404}
        again = http.post(f"{made[0]}/measurements", json={"outcome": "ok", "step_seconds": 2.6})
        assert again.status_code == 201
        assert db(url, "upgrade")["from"] == upgraded["to"]


@pytest.mark.long
def test_a_service_whose_database_is_behind_serves_as_soon_as_it_is_upgraded(postgresql_databases: Fresh) -> None:
    """Without a restart: the replicas of a new release may be there before its migration."""
    url = postgresql_databases()
    database = Database(url)
    upgrade.downgrade(database, "0004")
    database.close()
    with served(environment={**BRISK, "MESHWRIGHT_DATABASE_URL": url}) as server:
        checks = httpx2.get(f"{server.url}/readyz").json()["checks"]
        assert not checks["migrations"]["ready"]
        assert httpx2.post(f"{server.url}/v1/plans", json=SMALL).status_code == 503
        assert db(url, "upgrade") == {"from": "0004", "to": upgrade.head()}
        until(lambda: httpx2.get(f"{server.url}/readyz").status_code == 200)
        all_answered(server, post(server, 2))
