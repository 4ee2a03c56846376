"""Bearer tokens of a provider: good ones say who and what; every flaw is a refusal."""

import asyncio
import json
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from cost_models.errors import SpecError
from service.callers import Caller
from service.errors import Unauthenticated
from service.security import oidc
from service.security.authenticate import Authenticator
from service.settings import ServiceSettings
from service.storage.database import Database

ISSUER, AUDIENCE = "https://id.example.com", "meshwright"
KEY, OTHER_KEY = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())


class Published(jwt.PyJWKClient):
    """What a provider publishes: keys under names, or one without."""

    def __init__(self, *names: str | None) -> None:
        super().__init__(f"{ISSUER}/keys", cooldown_duration=oidc.ASKED_AGAIN_SECONDS)
        self.names, self.fetched = names, 0

    def fetch_data(self) -> Any:
        self.fetched += 1
        self._last_successful_fetch = time.monotonic()
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(KEY.public_key()))
        return {"keys": [{**public, "use": "sig"} | ({} if name is None else {"kid": name}) for name in self.names]}


def verifier(*names: str | None) -> oidc.Verifier:
    return oidc.Verifier(ISSUER, AUDIENCE, Published(*names), scope_claim="scope", project_claim="meshwright_project")


VERIFIER = verifier("one")


def claims(**changes: Any) -> dict[str, Any]:
    at = int(time.time())
    usual = {"iss": ISSUER, "aud": AUDIENCE, "sub": "u-1", "iat": at, "exp": at + 300, "email": "ada@example.com"}
    usual |= {"scope": "openid meshwright:plan meshwright:measure admin", "meshwright_project": "default"}
    return {key: value for key, value in (usual | changes).items() if value is not None}


def asked(database: Database, text: str, verifier: oidc.Verifier = VERIFIER) -> Caller | None:
    found = Authenticator(database, ServiceSettings(), verifier)
    return asyncio.run(found.caller(f"Bearer {text}"))


def test_a_good_token_says_who_and_what(database: Database) -> None:
    found = asked(database, jwt.encode(claims(), KEY, algorithm="ES256"))
    assert found is not None
    assert (found.name, found.key_id, found.project_id) == ("ada@example.com", "u-1", "default")
    assert found.scopes == {"plan", "measure"}


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": 1},
        {"iss": "https://elsewhere.example.com"},
        {"aud": "another"},
        {"exp": None},
        {"sub": None},
        {"sub": ""},
        {"sub": " "},
        {"sub": "u" * 201},
        {"aud": None},
        {"iat": int(time.time()) + 3600},
        {"meshwright_project": None},
        {"meshwright_project": "nobody's"},
        {"meshwright_project": ["default"]},
    ],
)
def test_a_flawed_token_is_refused(database: Database, changes: dict[str, Any]) -> None:
    with pytest.raises(Unauthenticated):
        asked(database, jwt.encode(claims(**changes), KEY, algorithm="ES256"))


def test_another_signature_is_refused(database: Database) -> None:
    for text in (
        jwt.encode(claims(), OTHER_KEY, algorithm="ES256"),
        jwt.encode(claims(), "a shared secret of thirty-two bytes or more", algorithm="HS256"),
        jwt.encode(claims(), "", algorithm="none"),
        "a.b.c",
    ):
        with pytest.raises(Unauthenticated):
            asked(database, text)


@pytest.mark.parametrize(
    ("published", "named", "why"),
    [
        (("one",), "one", None),
        (("one",), None, None),
        ((None,), "one", None),
        (("one", "two"), "two", None),
        (("one", "two"), None, r"names no key \(kid\), and the provider publishes 2"),
        (("one",), "two", "no key that the provider publishes"),
    ],
)
def test_the_key_that_a_token_names(
    database: Database, published: tuple[str | None, ...], named: str | None, why: str | None
) -> None:
    headers = None if named is None else {"kid": named}
    text = jwt.encode(claims(), KEY, algorithm="ES256", headers=headers)
    if why is None:
        assert asked(database, text, verifier(*published)) is not None
        return
    with pytest.raises(Unauthenticated, match=why):
        asked(database, text, verifier(*published))


def test_a_new_key_is_fetched_at_once_but_not_at_every_token(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = Published("one")
    keys.get_signing_key("one")
    keys.names = ("two",)
    for _ in range(3):
        with pytest.raises(jwt.PyJWKClientError):
            keys.get_signing_key("two")
    assert keys.fetched == 1
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + oidc.ASKED_AGAIN_SECONDS)
    assert keys.get_signing_key("two").key_id == "two"
    assert keys.fetched == 2


def test_nobody_is_let_in_unnamed_where_a_provider_is_known(database: Database) -> None:
    assert asyncio.run(Authenticator(database, ServiceSettings(), VERIFIER).caller(None)) is None
    assert asyncio.run(Authenticator(database, ServiceSettings(), None).caller(None)) == Caller()


def test_the_settings_come_together() -> None:
    assert oidc.verifier(ServiceSettings()) is None
    with pytest.raises(SpecError, match="set together, or none of them"):
        oidc.verifier(ServiceSettings(oidc_issuer=ISSUER))
    whole = ServiceSettings(oidc_issuer=ISSUER, oidc_audience=AUDIENCE, oidc_jwks_url=f"{ISSUER}/keys")
    assert oidc.verifier(whole) is not None
