"""Bearer tokens of an OpenID Connect provider: signature, issuer, audience and times are checked by PyJWT."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from cost_models.errors import SpecError
from service.errors import ProviderUnavailable, Unauthenticated
from service.security.access import SCOPES, Scope
from service.settings import ServiceSettings

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures by public keys only: with a shared secret whoever verifies could also sign."""
LEEWAY_SECONDS: Final = 30
NEEDED: Final = ("exp", "iat", "iss", "aud", "sub")
FETCH_SECONDS: Final = 5
SCOPE_PREFIX: Final = "meshwright:"
THREADS: Final = 2
"""Of its own: whoever sends tokens while the provider is away must hold up nothing else."""
AWAY_SECONDS: Final = 5.0
"""A provider that did not answer is not asked again so soon."""
ASKED_AGAIN_SECONDS: Final = 5.0
"""A key that is not among the kept ones has them fetched anew, but not more often than this."""
LONGEST_SUBJECT: Final = 200
"""As the audit keeps it. [characters]"""
FARTHEST: Final = 4102444800.0
"""The year 2100; tokens that end later are looked at as if they did then. [seconds since 1970]"""


class Claimed(NamedTuple):
    """What a verified token says."""

    subject: str
    name: str
    project: str
    scopes: frozenset[Scope]
    until: datetime


class Verifier:
    """Tokens of one issuer, for one audience."""

    def __init__(self, issuer: str, audience: str, keys: Any, *, scope_claim: str, project_claim: str) -> None:
        """`keys` finds the public key that a token names (`jwt.PyJWKClient`)."""
        self._issuer, self._audience, self._keys = issuer, audience, keys
        self._scope_claim, self._project_claim = scope_claim, project_claim
        self._threads = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="tokens")
        self._away_until = 0.0

    async def verified(self, text: str) -> Claimed:
        """What the token claims, once it is proven; in a thread, as the provider's keys may have to be fetched.

        Raises:
            Unauthenticated: it is not a good token for this service.
            ProviderUnavailable: the provider's keys cannot be fetched.
        """
        if time.monotonic() < self._away_until:
            raise ProviderUnavailable("the provider of bearer tokens did not answer")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._verified, text)

    def _verified(self, text: str) -> Claimed:
        import jwt

        try:
            key = self._key(text)
            claims = jwt.decode(
                text,
                key,
                algorithms=list(ALGORITHMS),
                audience=self._audience,
                issuer=self._issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": list(NEEDED)},
            )
        except jwt.PyJWKClientConnectionError as error:
            self._away_until = time.monotonic() + AWAY_SECONDS
            raise ProviderUnavailable("the provider of bearer tokens did not answer") from error
        except jwt.PyJWKClientError as error:
            raise Unauthenticated("the bearer token is signed with no key that the provider publishes") from error
        except jwt.PyJWTError as error:
            raise Unauthenticated(f"the bearer token is refused: {type(error).__name__}") from error
        stated = claims.get(self._scope_claim, "")
        words = stated.split() if isinstance(stated, str) else stated if isinstance(stated, list) else ()
        held = {str(word) for word in words}
        project = claims.get(self._project_claim)
        if not isinstance(project, str):
            raise Unauthenticated(f"the bearer token lacks the claim {self._project_claim}")
        subject = str(claims["sub"])
        if not (subject.strip() and len(subject) <= LONGEST_SUBJECT):
            raise Unauthenticated(f"the bearer token's claim sub is not 1 to {LONGEST_SUBJECT} characters")
        name = str(claims.get("preferred_username") or claims.get("email") or subject)[:200]
        until = datetime.fromtimestamp(min(float(claims["exp"]), FARTHEST), UTC)
        return Claimed(
            subject, name, project, frozenset(scope for scope in SCOPES if SCOPE_PREFIX + scope in held), until
        )

    def _key(self, text: str) -> Any:
        """The key that a token names; the only one there is, where one of both has no name."""
        import jwt

        named = jwt.get_unverified_header(text).get("kid")
        keys = [key for key in self._keys.get_jwk_set().keys if key.public_key_use in {"sig", None}]
        if len(keys) == 1 and (named is None or keys[0].key_id is None):
            return keys[0]
        if named is None:
            raise Unauthenticated(f"the bearer token names no key (kid), and the provider publishes {len(keys)}")
        return self._keys.get_signing_key(named)


def verifier(settings: ServiceSettings) -> Verifier | None:
    """The verifier that the settings ask for.

    Raises:
        SpecError: they are incomplete, or PyJWT is missing.
    """
    stated = (settings.oidc_issuer, settings.oidc_audience, settings.oidc_jwks_url)
    if all(value is None for value in stated):
        return None
    issuer, audience, url = stated
    if issuer is None or audience is None or url is None:
        raise SpecError("oidc_issuer, oidc_audience and oidc_jwks_url are set together, or none of them")
    try:
        import jwt
        from jwt.algorithms import has_crypto
    except ModuleNotFoundError:
        has_crypto = False
    if not has_crypto:
        raise SpecError("oidc_issuer is set but PyJWT with cryptography is missing: pip install 'meshwright[oidc]'")
    return Verifier(
        issuer,
        audience,
        # The set of keys is kept for minutes; single keys are not, as one that the provider takes back would stay good.
        jwt.PyJWKClient(url, cache_keys=False, timeout=FETCH_SECONDS, cooldown_duration=ASKED_AGAIN_SECONDS),
        scope_claim=settings.oidc_scope_claim,
        project_claim=settings.oidc_project_claim,
    )
