"""Nothing secret is said: the log of a whole run at its most talkative, its answers, its metrics and its database."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from sqlalchemy import text

from service.redaction import STRUCK, strike
from service.security import keys
from service.storage.database import Database
from service.storage.repositories import Repositories
from service.storage.tables import Base
from tests.databases.fixtures import Fresh
from tests.databases.postgresql import Server as PostgreSQL
from tests.integration.service.live import Server, served
from tests.integration.service.test_live import SMALL

PASSWORD = "pw-of-the-database-7f3a"
SIGNING = base64.b64encode(b"the signing key of messages 0123").decode()
OWN = ec.generate_private_key(ec.SECP256R1())
ISSUER = "https://id.example.com"


@pytest.fixture
def provider() -> Iterator[str]:
    """Publishes one key, as an OIDC provider does."""
    published = {**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(OWN.public_key())), "kid": "one", "use": "sig"}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"keys": [published]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/keys"
    server.shutdown()
    server.server_close()


def token(**changes: Any) -> str:
    at = int(time.time())
    claims = {"iss": ISSUER, "aud": "meshwright", "sub": "u-1", "iat": at, "exp": at + 300, "scope": "meshwright:plan"}
    return jwt.encode({**claims, "meshwright_project": "default", **changes}, OWN, "ES256", headers={"kid": "one"})


def careless(http: httpx2.Client, secret: str) -> list[str]:
    """Every place where somebody could put a secret by mistake; what was answered."""
    bearer = {"Authorization": f"Bearer {secret}"}
    asks: list[tuple[str, str, dict[str, Any]]] = [
        ("GET", "/v1/plans", {"headers": bearer}),
        ("POST", "/v1/plans", {"headers": bearer, "json": SMALL}),
        ("POST", "/v1/plans", {"headers": bearer, "json": {**SMALL, "webhook": {"url": "http://10.0.0.1/"}}}),
        ("POST", "/v1/plans", {"headers": bearer, "content": b"{"}),
        ("POST", "/v1/measurements", {"headers": bearer, "json": {}}),
        ("DELETE", "/v1/plans/none", {"headers": bearer}),
        ("GET", f"/v1/plans/{secret}", {}),
        ("DELETE", f"/v1/plans/{secret}", {"headers": bearer}),
        ("PUT", f"/v1/plans/none/tags/{secret[:60]}", {"headers": bearer}),
        ("GET", "/v1/plans", {"headers": bearer, "params": {"page_token": secret[:400]}}),
        ("GET", "/v1/plans", {"headers": {"Authorization": f"Basic {secret}"}}),
        ("GET", "/v1/plans", {"headers": {"Authorization": secret}}),
        ("GET", "/livez", {"headers": {"X-Request-Id": secret[:64], **bearer}}),
    ]
    return [http.request(method, path, **more).text for method, path, more in asks]


def test_a_whole_run_says_no_secret(postgresql_server: PostgreSQL, postgresql_databases: Fresh, provider: str) -> None:
    url = postgresql_databases()
    database = Database(url)
    good = database.write(lambda work: keys.create(work, "default", "good", ["plan", "admin"])).token
    gone = database.write(lambda work: keys.create(work, "default", "gone", ["admin"]))
    database.write(lambda work: keys.revoke(work, gone.id))
    tokens = [token(), token(exp=1), token(meshwright_project="nobody's")]
    environment = {
        "MESHWRIGHT_DATABASE_URL": url.replace("//meshwright@", f"//meshwright:{PASSWORD}@"),
        "MESHWRIGHT_WEBHOOK_SECRET": f"whsec_{SIGNING}",
        "MESHWRIGHT_WEBHOOK_NETWORKS": '["127.0.0.0/8"]',
        "MESHWRIGHT_AUTHENTICATION": "required",
        "MESHWRIGHT_OIDC_ISSUER": ISSUER,
        "MESHWRIGHT_OIDC_AUDIENCE": "meshwright",
        "MESHWRIGHT_OIDC_JWKS_URL": provider,
        "MESHWRIGHT_LOG_LEVEL": "DEBUG",
        "MESHWRIGHT_DATABASE_RETRY_SECONDS": "0.2",
    }
    assert PASSWORD in environment["MESHWRIGHT_DATABASE_URL"]
    with served(environment=environment) as server, httpx2.Client(base_url=server.url, timeout=60) as http:
        bearer = {"Authorization": f"Bearer {good}", "Prefer": "wait=60"}
        hooked = {**SMALL, "webhook": {"url": f"{provider}?token={SIGNING[:20]}"}}
        assert http.post("/v1/plans", json=hooked, headers=bearer).status_code == 200
        allowed = [http.get("/v1/devices", headers={"Authorization": f"Bearer {one}"}).status_code for one in tokens]
        assert allowed == [200, 401, 401]
        answers = [text for secret in (good, gone.token, *tokens) for text in careless(http, secret)]
        postgresql_server.stop()
        try:
            answers += [text for secret in (good, *tokens) for text in careless(http, secret)]
        finally:
            postgresql_server.start()
        answers.append(http.get("/metrics", headers=bearer).text)
        wait_for_the_audit(database)
    said = "".join(server.lines)
    kept = database.read(everything)
    database.close()
    assert "the database is not available" in said
    assert '"status": 503' in said
    ends = [one.rpartition("_")[2] for one in (good, gone.token)]
    for secret in (PASSWORD, SIGNING, *ends, *(one.rpartition(".")[2] for one in tokens)):
        assert secret not in said, line_of(server, secret)
        assert secret not in kept
    for secret in (PASSWORD, SIGNING):
        assert secret not in "".join(answers) + kept


def everything(work: Repositories) -> str:
    return str([work.session.execute(text(f"SELECT * FROM {table}")).all() for table in Base.metadata.tables])


def wait_for_the_audit(database: Database) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if database.read(lambda work: work.audit.page("default", after=None, size=1)).rows:
            return
        time.sleep(0.1)


def line_of(server: Server, secret: str) -> str:
    return next(line for line in server.lines if secret in line)


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("key mwk_0123456789ab_" + "a" * 64, f"key mwk_0123456789ab_{STRUCK}"),
        ("postgresql://user:pa%40ss@host/db", f"postgresql://user:{STRUCK}@host/db"),
        ('{"authorization": "Bearer abc.def-1"}', f'{{"authorization": "Bearer {STRUCK}"}}'),
        ("whsec_AAA+/=", f"whsec_{STRUCK}"),
        ("a eyJhbGciOiJIUzI1NiJ9.e30.abc b", f"a {STRUCK} b"),
        ("host=x password=foo port=1", f"host=x password={STRUCK} port=1"),
        ("http://a/b:c@d https://h:80/x@y", "http://a/b:c@d https://h:80/x@y"),
        ("nothing to see", "nothing to see"),
    ],
)
def test_what_has_the_form_of_a_secret_is_struck_out(said: str, left: str) -> None:
    assert strike(said) == left
