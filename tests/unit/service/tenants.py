"""Two tenants in one service, each with keys of every scope, and one with something of every kind."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from planner import calibrations
from service.reading import CONFIGURATION_EXAMPLE
from service.routes.devices import EXAMPLE as DEVICE
from service.routes.models import EXAMPLE as MODEL
from service.security import keys
from service.security.access import SCOPES
from service.storage import upgrade
from service.storage.database import Database
from service.storage.repositories import Repositories
from service.storage.tables import now
from tests.contracts.tree import ROOT
from tests.databases import ambient
from tests.unit.service.client import JOB, FakePool, client
from tests.unit.service.storage.rows import plan, solve

MARK = "zanzibar"
"""In every name that the first tenant gives."""


@dataclass
class World:
    """A client, the tokens by caller, and the ids of what the first tenant has, by path parameter."""

    http: Any
    database: Database
    tokens: dict[str, str] = field(default_factory=dict)
    made: dict[str, dict[str, str]] = field(default_factory=dict)

    def ask(self, who: str | None, method: str, path: str, **more: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.tokens[who]}"} if who else {}
        return self.http.request(method, path, headers={**headers, **more.pop("headers", {})}, **more)


@contextmanager
def world(pool: FakePool | None = None, **settings: Any) -> Iterator[World]:
    url = ambient.fresh()
    database = Database(url, retry_seconds=5)
    upgrade.upgrade(database)
    with client(pool, FakePool(), database_url=url, authentication="required", **settings) as http:
        found = World(http, database)
        database.write(lambda work: found.tokens.update(_tokens(work)))
        try:
            yield found
        finally:
            database.close()


def _tokens(work: Repositories) -> dict[str, str]:
    made: dict[str, str] = {scope: keys.create(work, "default", scope, [scope]).token for scope in SCOPES}
    made["neighbour"] = keys.create(work, "neighbours", "neighbour", list(SCOPES), new_project=True).token
    made["expired"] = keys.create(work, "default", "old", ["admin"], expires_at=now() - timedelta(seconds=1)).token
    revoked = keys.create(work, "default", "gone", ["admin"])
    keys.revoke(work, revoked.id)
    made["revoked"] = revoked.token
    made["forged"] = made["admin"][:-8] + ("0" * 8 if made["admin"][-8:] != "0" * 8 else "1" * 8)
    made["unreadable"] = "mwk_nonsense"
    return made


def fill(found: World) -> None:
    """Make one of everything as the first tenant's admin; `made` says what path parameters stand for."""

    def post(path: str, body: dict[str, Any]) -> str:
        answer = found.ask("admin", "POST", path, json=body, headers={"Prefer": "wait=10"})
        assert answer.status_code in {200, 201}, answer.text
        return str(answer.headers.get("location", "").rpartition("/")[2])

    made = post("/v1/plans", JOB)
    other = post("/v1/plans", {**JOB, "training": {**JOB["training"], "global_batch_size": 64}})

    def answered(verb: str) -> str:
        return found.database.write(lambda work: _answered(work, verb))

    estimate = post("/v1/estimates", {**JOB, "configuration": CONFIGURATION_EXAMPLE})
    measurement = post(f"/v1/plans/{made}/measurements", MEASUREMENT)
    assert found.ask("admin", "PUT", f"/v1/plans/{made}/tags/{MARK}").status_code == 200
    job = post("/v1/jobs", {"name": f"{MARK}-job", "plan_id": made})
    post(f"/v1/jobs/{job}/versions", {"plan_id": other})
    device = post("/v1/devices", {**DEVICE, "name": f"{MARK}-device"})
    cluster = post("/v1/clusters", {"name": f"{MARK}-cluster", "pools": JOB["cluster"]["pools"]})
    model = post("/v1/models", {"name": f"{MARK}-model", "architecture": MODEL["architecture"]})
    calibration = post("/v1/calibrations", CALIBRATION)
    exact = {
        "calibration_id": calibration,
        "plan_id": made,
        "other_id": other,
        "tag": MARK,
        "target": "deepspeed",
        "measurement_id": measurement,
    }
    found.made = {
        "": exact,
        "jobs": {"name": job},
        "clusters": {"name": cluster},
        "models": {"name": model},
        "frontiers": {"answer_id": answered("frontier")},
        "ladders": {"answer_id": answered("ladder")},
        "estimates": {"plan_id": estimate},
        "devices": {"name": device},
    }


def made_before(verb: str) -> dict[str, Any]:
    """An answer that the service gave when its examples were written."""
    found: dict[str, Any] = json.loads((ROOT / "service" / "examples.json").read_text(encoding="utf-8"))
    answer: dict[str, Any] = found[f"get_{verb}"]["200"]["example"]
    return answer


def _answered(work: Repositories, verb: str) -> str:
    """A request of another verb with its answer."""
    shipped = work.calibrations.page("default", after=None, size=1).rows[0].id
    row = plan(shipped, kind=verb, content=json.dumps(made_before(verb)))
    work.plans.add(row)
    work.solves.add(solve(shipped, id=row.id, verb=verb, state="done"))
    return row.id


MEASUREMENT = {"outcome": "ok", "step_seconds": 3.5, "notes": MARK}
CALIBRATION = {"reason": MARK, "calibration": calibrations.current().model_dump(mode="json")}
