"""Health, catalogue, ids, problem pages, unexpected errors."""

import asyncio
import json
import logging
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import text

from cost_models.errors import SpecError
from planner.version import __version__
from service import problems
from service.cli import serve
from service.limits import is_loopback
from service.observability import configure
from service.problem_kinds import KINDS
from service.readiness import Readiness
from service.settings import ServiceSettings, unknown_variables
from service.storage import upgrade
from service.storage.database import Database
from tests.unit.service.client import JOB, FakePool, client

pytestmark = pytest.mark.usefixtures("databases")


def test_alive_is_not_ready() -> None:
    pool = FakePool()
    with client(pool) as http:
        found = http.get("/readyz").json()
        assert found["status"] == "ok"
        assert set(found["checks"]) == {"service", "pool", "database", "migrations"}
        pool.ready = False
        assert http.get("/livez").json() == {"status": "ok"}
        for path in ("/readyz", "/healthz"):
            answer = http.get(path)
            assert (answer.status_code, answer.json()["type"]) == (503, "/problems/not-serving")
            assert answer.headers["content-type"] == problems.MEDIA_TYPE
            assert [name for name, check in answer.json()["checks"].items() if not check["ready"]] == ["pool"]


def test_what_is_not_ready_is_said_of_each(database_url: str) -> None:
    """A database that was never upgraded, then none that answers."""
    database = Database(database_url, retry_seconds=0.1)
    upgrade.downgrade(database, "0002")
    readiness = Readiness(database, FakePool(), SimpleNamespace(closing=False))  # type: ignore[arg-type]
    found = asyncio.run(readiness.look())
    assert (
        found["migrations"].detail == f"at migration 0002, this release needs {upgrade.head()}: meshwright db upgrade"
    )
    assert [name for name, seen in found.items() if not seen.ready] == ["migrations"]
    database.close()
    away = Database("postgresql://nobody@127.0.0.1:9/none", retry_seconds=0.1)
    found = asyncio.run(Readiness(away, FakePool(), SimpleNamespace(closing=True)).look())  # type: ignore[arg-type]
    away.close()
    assert [name for name, seen in found.items() if not seen.ready] == ["service", "database", "migrations"]


def test_a_database_that_is_ahead_is_ready(database_url: str) -> None:
    """Replicas of the release before go on, and a release that is put back comes up."""
    stamp(database_url, "9999")
    with client(database_url=database_url) as http:
        assert http.get("/readyz").json()["checks"]["migrations"] == {
            "ready": True,
            "detail": f"at migration 9999, ahead of this release ({upgrade.head()})",
        }
        assert http.post("/v1/plans", json=JOB, headers={"Prefer": "wait=10"}).status_code == 200


def test_a_database_that_is_behind_is_served_once_it_is_upgraded(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    database = Database(database_url)
    upgrade.downgrade(database, "0006")
    with client(database_url=database_url, database_upgrade="never") as http:
        refused = http.get("/v1/clusters")
        assert (refused.status_code, refused.json()["type"]) == (503, "/problems/storage-unavailable")
        assert "at migration 0006" in refused.json()["detail"]
        assert "meshwright db upgrade" in refused.json()["detail"]
        assert http.get("/livez").status_code == 200
        assert "cannot be read" not in caplog.text, "the queue waits quietly"
        upgrade.upgrade(database)
        ends = time.monotonic() + 10
        while http.get("/v1/clusters").status_code != 200 and time.monotonic() < ends:
            time.sleep(0.05)
        assert http.post("/v1/plans", json=JOB, headers={"Prefer": "wait=10"}).status_code == 200
    database.close()


def stamp(url: str, revision: str) -> None:
    """Say that a newer release has been here."""
    database = Database(url)
    with database.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision})
    database.close()


def test_every_kind_of_problem_has_its_page() -> None:
    with client() as http:
        for slug, kind in KINDS.items():
            assert http.get(f"/problems/{slug}").json() == kind.model_dump()


def test_the_catalogue_is_listed_by_name() -> None:
    with client() as http:
        models = {model["name"]: model for model in http.get("/v1/models?page_size=200").json()["items"]}
        assert models["llama-2-7b"]["parameters"] == 6738415616
        devices = {device["name"] for device in http.get("/v1/devices", params={"text": "A100"}).json()["items"]}
        assert "a100-sxm-80gb" in devices
        assert not any("h100" in name for name in devices)


@pytest.mark.parametrize(("stated", "kept"), [("abc-123", True), ("a\tb", False), ("x" * 65, False), ("a b", False)])
def test_a_plain_request_id_is_kept(stated: str, kept: bool) -> None:
    with client() as http:
        found = http.get("/livez", headers={"X-Request-Id": stated}).headers["x-request-id"]
    assert (found == stated) is kept
    assert found


def test_a_bug_is_a_problem_without_its_details(monkeypatch: Any, capsys: Any) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("secret path /etc")

    with client() as http:
        monkeypatch.setattr("cost_models.catalog.devices", broken)
        answer = http.get("/v1/devices")
    assert answer.status_code == 500
    assert answer.json()["type"] == "/problems/internal-error"
    assert "secret" not in answer.text


def test_logs_are_json_lines_with_the_requests_id(capsys: Any) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        configure("INFO", "json")
        with client() as http:
            http.get("/livez", headers={"X-Request-Id": "id-7"})
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    line = next(line for line in lines if line.get("path") == "/livez")
    assert (line["request_id"], line["status"], line["method"]) == ("id-7", 200, "GET")


def test_the_documentation_is_served() -> None:
    with client() as http:
        assert http.get("/docs").status_code == 200
        assert http.get("/openapi.json").json()["info"]["version"] == __version__


def test_a_setting_out_of_range_is_named_in_one_line(monkeypatch: Any) -> None:
    monkeypatch.setenv("MESHWRIGHT_PORT", "99999")
    with pytest.raises(SpecError, match="MESHWRIGHT_PORT: Input should be less than or equal to 65535"):
        ServiceSettings.stated()
    assert ServiceSettings.stated(port=1).port == 1


@pytest.mark.parametrize(
    ("host", "local"),
    [
        *[(host, True) for host in ("127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost")],
        *[(host, False) for host in ("0.0.0.0", "::", "10.0.0.1", "example.org", "", "localhost.example.org")],
    ],
)
def test_what_counts_as_this_machine(host: str, local: bool) -> None:
    assert is_loopback(host) is local


def test_the_page_of_the_interface_needs_no_other_host() -> None:
    with client() as http:
        page = http.get("/docs").text
        named = re.findall(r'(?:src|href)="([^"]+)"', page)
        assert len(named) == 3
        for path in named:
            assert path.startswith("/docs/files/"), path
            answer = http.get(path)
            assert answer.status_code == 200
            assert answer.content
        assert "/openapi.json" in page
        assert http.get("/docs/files/../core.py").status_code == 404


def test_settings_come_from_files_too(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("MESHWRIGHT_DATABASE_URL", "postgresql://planner@db:5433/plans?sslmode=require")
    (tmp_path / "meshwright_database_password").write_text("p@ss/word\n", encoding="utf-8")
    monkeypatch.setenv("MESHWRIGHT_SECRETS_DIR", str(tmp_path))
    settings = ServiceSettings.stated()
    assert settings.database_address == "postgresql://planner:p%40ss%2Fword@db:5433/plans?sslmode=require"
    assert "p@ss" not in repr(settings)
    assert "planner" not in repr(settings)
    assert ServiceSettings.stated(database_url="sqlite:///x.db").database_address == "sqlite:///x.db"
    monkeypatch.setenv("MESHWRIGHT_SECRETS_DIR", str(tmp_path / "none"))
    with pytest.raises(SpecError, match="which is no folder"):
        ServiceSettings.stated()


def test_a_misspelt_setting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHWRIGHT_SOLVER_PROCESES", "3")
    with pytest.raises(SpecError, match="PROCESES is no setting; did you mean MESHWRIGHT_SOLVER_PROCESSES"):
        ServiceSettings.stated()


def test_a_secret_that_is_none_is_named_as_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHWRIGHT_WEBHOOK_SECRET", "whsec_short")
    with pytest.raises(SpecError, match=r"^MESHWRIGHT_WEBHOOK_SECRET: ") as refused:
        ServiceSettings.stated()
    assert "whsec_short" not in str(refused.value)


def test_every_variable_of_ours_is_known() -> None:
    """Those that the executor, the tests and the documents name, too."""
    root = Path(__file__).parents[3]
    files = [file for folder in ("executor", "planner", "service", "deploy") for file in (root / folder).rglob("*.*")]
    texts = [file.read_text(encoding="utf-8") for file in files if file.suffix in {".py", ".yaml", ".service"}]
    texts += [file.read_text(encoding="utf-8") for file in (root / "docs").glob("*.md")]
    named = {found for text in texts for found in re.findall(r"MESHWRIGHT_[A-Z_]*[A-Z]", text)}
    assert len(named) > 30
    assert unknown_variables(named) == []
    assert unknown_variables({"MESHWRIGHT_SERVICE_HOST", "PATH"}) == ["MESHWRIGHT_SERVICE_HOST"]


@pytest.mark.parametrize("place", ["/proc/none/x.db", "{folder}", "{file}/x.db"])
def test_a_database_that_cannot_be_made_is_said_in_a_line(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MESHWRIGHT_DATABASE_URL", f"sqlite:///{place.format(folder=tmp_path, file=tmp_path / 'file')}")
    with pytest.raises(SpecError, match="database_url is"):
        serve()


def test_a_provider_half_stated_is_said_in_a_line(monkeypatch: pytest.MonkeyPatch, database_url: str) -> None:
    monkeypatch.setenv("MESHWRIGHT_DATABASE_URL", database_url)
    monkeypatch.setenv("MESHWRIGHT_OIDC_ISSUER", "https://id.example.com")
    with pytest.raises(SpecError, match="are set together"):
        serve()
