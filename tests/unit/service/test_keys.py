"""Keys: made, rotated, revoked at once, counted, recorded, never written down."""

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from cost_models.errors import SpecError
from service.cli import serve
from service.cli_keys import app
from service.errors import Conflict, NotFound
from service.observability import configure
from service.security import tokens
from service.security.rates import BURST_SECONDS, Rates
from tests.unit.service.client import JOB, client
from tests.unit.service.tenants import world

pytestmark = pytest.mark.usefixtures("databases")


def run(url: str, *arguments: str) -> Any:
    done = CliRunner().invoke(app, [*arguments, "--url", url, "--json"])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return json.loads(done.stdout)


def ask(http: Any, token: str) -> int:
    return int(http.get("/v1/plans", headers={"Authorization": f"Bearer {token}"}).status_code)


def test_a_key_lets_in_until_it_is_revoked(database_url: str) -> None:
    with client(database_url=database_url) as http:
        assert http.get("/v1/plans").status_code == 200
        made = run(database_url, "create", "slurm", "--scope", "plan")
        assert http.get("/v1/plans").status_code == 401, "the first key closes the loopback too"
        assert ask(http, made["token"]) == 200
        run(database_url, "revoke", made["id"])
        assert ask(http, made["token"]) == 401
        assert http.get("/v1/plans").status_code == 401, "no way in by the end of the last key"
    listed = run(database_url, "list")
    assert [(key["id"], key["state"], key["scopes"]) for key in listed] == [(made["id"], "revoked", ["plan"])]


def test_a_rotated_key_is_good_for_a_while(database_url: str) -> None:
    with client(database_url=database_url) as http:
        old = run(database_url, "create", "slurm", "--scope", "plan", "--requests-per-minute", "600")
        new = run(database_url, "rotate", old["id"], "--grace-hours", "1")
        assert (new["replaces"], new["scopes"], new["requests_per_minute"]) == (old["id"], ["plan"], 600)
        assert [ask(http, key["token"]) for key in (old, new)] == [200, 200]
        listed = CliRunner().invoke(app, ["list", "--url", database_url]).stdout.splitlines()
        [end] = [key["good_until"] for key in run(database_url, "list") if key["id"] == old["id"]]
        assert listed[0].endswith(f"good until {end[:10]} {end[11:16]} UTC"), "a coming end is told"
        assert "until" not in listed[1]
        newer = run(database_url, "rotate", new["id"], "--grace-hours", "0")
        assert [ask(http, key["token"]) for key in (old, new, newer)] == [200, 401, 200]
    with pytest.raises(Conflict, match="is revoked; create a new one"):
        run(database_url, "rotate", new["id"])


def test_what_cannot_be_made(database_url: str) -> None:
    with pytest.raises(NotFound, match="no project is called nobody; there are default; --new-project makes one"):
        run(database_url, "create", "a", "--scope", "plan", "--project", "nobody")
    with pytest.raises(SpecError, match="--scope root is none of plan, measure, calibrate, admin"):
        run(database_url, "create", "a", "--scope", "root")
    with pytest.raises(NotFound, match="no key has the id"):
        run(database_url, "revoke", "0" * 12)
    with pytest.raises(SpecError, match="--expires-in-days 0 makes a key that lets nobody in"):
        run(database_url, "create", "a", "--scope", "plan", "--expires-in-days", "0")
    for name in ("a\nb", "", " ", "x" * 201):
        with pytest.raises(SpecError, match=r"the key's name .* is not 1 to 200 printable characters"):
            run(database_url, "create", name, "--scope", "plan")
    with pytest.raises(SpecError, match=r"--project 'a\\tb' is not"):
        run(database_url, "create", "a", "--scope", "plan", "--project", "a\tb", "--new-project")
    for name in ("../../x", "Vision", "a b", "-x"):
        with pytest.raises(SpecError, match="the rule of names"):
            run(database_url, "create", "a", "--scope", "plan", "--project", name, "--new-project")
    for verb in (("create", "a", "--scope", "plan", "--expires-in-days"), ("rotate", "0" * 12, "--grace-hours")):
        refused = CliRunner().invoke(app, [*verb, "99999999999", "--url", database_url])
        assert refused.exit_code == 2, refused.output
    assert run(database_url, "list") == []


@contextmanager
def logged() -> Iterator[None]:
    """Logs go to standard error as it is now: pytest gives each phase of a test another."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    configure("DEBUG", "json")
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def test_the_secret_is_kept_nowhere(capsys: Any) -> None:
    with logged(), world() as found:
        token = found.tokens["plan"]
        assert found.ask("plan", "POST", "/v1/plans", json=JOB).status_code in {200, 202}
        assert found.ask("forged", "GET", "/v1/plans").status_code == 401
        rows = found.database.read(lambda work: work.session.execute(text("SELECT * FROM api_keys")).all())
    secret = token.rpartition("_")[2]
    assert secret not in str(rows)
    assert tokens.read(token).sha256 in str(rows)  # type: ignore[union-attr]
    said = "".join(capsys.readouterr())
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    asked = [line for line in lines if line.get("path") == "/v1/plans"]
    assert [(line["status"] < 400, line["operation"], line["caller"]) for line in asked] == [
        (True, "create_plan", "plan"),
        (False, "none", "admin"),
    ], "one line each, which says whose key it was"
    assert asked[0]["key_id"] == tokens.read(token).id  # type: ignore[union-attr]
    assert asked[0]["plan_id"]
    assert not any(value.rpartition("_")[2] in said for value in found.tokens.values() if len(value) > 40)
    assert secret not in repr(tokens.read(token))


def test_whoever_asks_too_often_waits() -> None:
    with world(requests_per_minute=12) as found:
        codes = [found.ask("plan", "GET", "/v1/devices").status_code for _ in range(4)]
        assert codes == [200, 200, 429, 429]
        refused = found.ask("plan", "GET", "/v1/devices")
        assert refused.json()["type"] == "/problems/rate-limited"
        assert 1 <= int(refused.headers["retry-after"]) <= 5
        assert found.ask("measure", "GET", "/v1/devices").status_code == 200, "each key has its own"


def test_a_bucket_fills_steadily() -> None:
    clock = [0.0]
    rates = Rates(lambda: clock[0])
    burst = int(BURST_SECONDS * 2)
    assert [rates.wait("a", 120) for _ in range(burst)] == [0.0] * burst
    assert rates.wait("a", 120) == pytest.approx(0.5)
    clock[0] = 0.5
    assert rates.wait("a", 120) == 0.0
    assert rates.wait("a", 120) == pytest.approx(0.5)
    assert rates.wait("b", 120) == 0.0


def test_who_changed_what_is_recorded() -> None:
    with world() as found:
        found.ask("plan", "POST", "/v1/plans", json=JOB, headers={"X-Request-Id": "id-9"})
        found.ask("measure", "POST", "/v1/plans", json=JOB)
        found.ask("plan", "GET", "/v1/plans")
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            items = found.ask("admin", "GET", "/v1/audit").json()["items"]
            asked = [(item["caller"], item["action"], item["status"]) for item in items if item["status"]]
            if len(asked) == 2:
                break
            time.sleep(0.1)
        assert [one[:2] for one in asked] == [("measure", "create_plan"), ("plan", "create_plan")]
        assert (asked[0][2], asked[1][2] in {200, 202}) == (403, True)
        assert items[1]["request_id"] == "id-9"
        assert "keys.create" in {item["action"] for item in items}
        with pytest.raises(Conflict, match="UPDATE of audit is refused"):
            found.database.write(lambda work: work.session.execute(text("UPDATE audit SET caller = 'nobody'")))


def test_nothing_is_served_to_others_before_there_are_keys(database_url: str, monkeypatch: Any) -> None:
    ran: list[str] = []

    def ran_on(_: Any, settings: Any) -> bool:
        ran.append(settings.host)
        return True

    monkeypatch.setattr("service.serving.run", ran_on)
    monkeypatch.setenv("MESHWRIGHT_DATABASE_URL", database_url)
    with pytest.raises(SpecError, match="reachable from other machines and there is no good API key"):
        serve(host="0.0.0.0")
    gone = run(database_url, "create", "a", "--scope", "plan")
    run(database_url, "revoke", gone["id"])
    with pytest.raises(SpecError, match="there is no good API key"):
        serve(host="0.0.0.0")
    serve(host="127.0.0.1")
    serve(host="0.0.0.0", insecure_no_auth=True)
    run(database_url, "create", "a", "--scope", "plan")
    serve(host="0.0.0.0")
    assert ran == ["127.0.0.1", "0.0.0.0", "0.0.0.0"]


@pytest.mark.parametrize("header", ["Basic YTpi", "Bearer", "Bearer x", "Bearer  ", "mwk_1", "Bearer \xff"])
def test_another_kind_of_name_is_refused(header: str) -> None:
    with client() as http:
        answer = http.get("/v1/plans", headers={b"Authorization": header.encode("latin-1")})
    assert answer.status_code == 401
    assert answer.json()["type"] == "/problems/unauthenticated"
