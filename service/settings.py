"""Settings of the service: environment variables with the prefix MESHWRIGHT_, overridden by the flags of `serve`."""

import base64
import os
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal, Self
from urllib.parse import quote, urlsplit, urlunsplit

from pydantic import (
    Field,
    IPvAnyNetwork,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SecretStr,
    ValidationError,
    field_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from cost_models.errors import SpecError
from cost_models.specs.base import one_line
from planner.settings import Settings

PREFIX: Final = "MESHWRIGHT_"
OTHERS: Final = frozenset(
    (
        *("SECRETS_DIR", "TEST_ALL", "UPDATE_GOLDEN"),
        # what training nodes read and a run is told by: executor
        *("API_KEY", "CHECKPOINTS", "CHECKPOINT_EVERY", "DEEPSPEED_CONFIG", "MEMORY_CAP", "PLAN", "REPORT", "SERVICE"),
        *("SLOWDOWN", "SPOOL", "TIMED_STEPS", "WARMUP_STEPS"),
    )
)
"""Variables that are no settings of the service or the command line; a test finds those that are missing here."""
MISSPELT: Final = 0.85
"""Share of letters from which a name is taken for another that was meant."""
SECRET_BYTES: Final = (24, 64)
SECRETS: Final = "MESHWRIGHT_SECRETS_DIR"
"""Names a folder of files that hold one setting each, called as its variable is, in whatever case."""


def _own_file() -> str:
    """The embedded database, where the XDG Base Directory Specification has a user's data."""
    home = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return f"sqlite:///{Path(home) / 'meshwright' / 'meshwright.db'}"


class ServiceSettings(BaseSettings):
    """One installation."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True)

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    forwarded_allow_ips: str | None = None
    """Addresses and networks of reverse proxies whose X-Forwarded-For and X-Forwarded-Proto are believed, with commas
    between them; without it nobody's are."""
    solver_processes: PositiveInt = 1
    """Solves that run at the same time; each takes one core."""
    authentication: Literal["auto", "required", "none"] = "auto"
    """required: nobody gets in without a key. auto: neither, once a key exists or tokens are taken; until then callers
    of this machine are not asked, and no other can be. none: nobody is asked, whoever can reach the service."""
    requests_per_minute: PositiveInt | None = 6000
    """Of each key that states none of its own, on each replica."""
    oidc_issuer: str | None = None
    oidc_audience: str | None = None
    oidc_jwks_url: str | None = None
    """Where the issuer publishes its keys. With these three its bearer tokens are taken."""
    oidc_scope_claim: str = "scope"
    """Its words `meshwright:plan` (or `plan`), ..., are the caller's scopes."""
    oidc_project_claim: str = "meshwright_project"
    """Names the caller's project."""
    solve_timeout_seconds: PositiveFloat = 600.0
    """A solve is stopped after this."""
    estimate_timeout_seconds: PositiveFloat = 30.0
    """An estimate is stopped after this, or after the limit of solves where that is shorter."""
    max_waiting: PositiveInt = 256
    """Accepted plans that wait for a solver; more are refused."""
    max_waiting_per_project: PositiveInt | None = None
    """The same of one project. Left out: half of `max_waiting` where there are several, so that none fills it."""
    max_watching_per_project: PositiveInt = 256
    """Callers of one project who wait for a plan or watch it; to more, plans are answered as they are."""
    max_wait_seconds: NonNegativeFloat = 60.0
    """Longest wait that `Prefer: wait` is granted."""
    max_body_bytes: PositiveInt = 2**20
    client_seconds: PositiveFloat = 20.0
    """A client may take so long to send a request's head, and so long for its body."""
    database_url: str = Field(default_factory=_own_file, repr=False)
    """sqlite:///FILE, or postgresql://USER@HOST/NAME where several replicas serve."""
    database_password: SecretStr | None = None
    """Goes into `database_url`, which then need hold none."""
    database_connections: PositiveInt = 4
    database_retry_seconds: NonNegativeFloat = 10.0
    """A request waits so long for a database that is away."""
    database_upgrade: Literal["auto", "always", "never"] = "auto"
    """Whether `serve` migrates the database: auto does it for SQLite, which no other replica uses."""
    solver_pool: str = Field(default="processes", pattern=r"^(processes|dask://[^/\s]+:\d+)$")
    """processes: our own. dask://HOST:PORT: the workers of a Dask scheduler."""
    lease_seconds: PositiveFloat = 20.0
    """A solve whose service has been silent for so long is taken over."""
    poll_seconds: PositiveFloat = 1.0
    """How often the queue is looked at for requests that other replicas accepted."""
    shutdown_seconds: PositiveFloat = 20.0
    """Open requests are given this long when the service is told to end."""
    recalibrate_after: NonNegativeInt = 10
    """A project's constants are corrected anew when so many of its runs have come in since; 0: only when asked."""
    webhook_secret: SecretStr | None = None
    """Signs messages to webhooks: `whsec_` and 24 to 64 bytes in base64. Without it none are taken on."""
    webhook_networks: tuple[IPvAnyNetwork, ...] = ()
    """Private networks that messages may go to, such as ["10.0.0.0/8"]; public addresses always may."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_format: Literal["auto", "json", "console"] = "auto"
    """auto: console on a terminal, JSON lines elsewhere."""

    @field_validator("webhook_secret")
    @classmethod
    def _signs(cls, secret: SecretStr | None) -> SecretStr | None:
        """A secret of the length that Standard Webhooks asks for."""
        if secret is not None:
            try:
                length = len(base64.b64decode(secret.get_secret_value().removeprefix("whsec_"), validate=True))
            except ValueError:
                length = 0
            if not (secret.get_secret_value().startswith("whsec_") and SECRET_BYTES[0] <= length <= SECRET_BYTES[1]):
                raise ValueError(f"not whsec_ and {SECRET_BYTES[0]} to {SECRET_BYTES[1]} bytes in base64")
        return secret

    @property
    def database_address(self) -> str:
        """`database_url` with the password; a secret."""
        if self.database_password is None or self.database_url.startswith("sqlite"):
            return self.database_url
        parts = urlsplit(self.database_url)
        user, _, host = parts.netloc.rpartition("@")
        password = quote(self.database_password.get_secret_value().strip(), safe="")
        return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}:{password}@{host}"))

    @classmethod
    def stated(cls, **flags: Any) -> Self:
        """The environment's settings under the flags.

        Raises:
            SpecError: a variable or flag is out of its range, or a variable is nearly called as a setting is; the
                message names it.
        """
        for name in unknown_variables(os.environ):
            near = get_close_matches(name.removeprefix(PREFIX), _settings(), 1, MISSPELT)
            if near:
                raise SpecError(f"{name} is no setting; did you mean {PREFIX}{near[0]}?")
        folder = os.environ.get(SECRETS)
        if folder is not None and not Path(folder).is_dir():
            raise SpecError(f"{SECRETS} is {folder}, which is no folder")
        try:
            return cls(_secrets_dir=folder, **flags)
        except ValidationError as error:
            setting, colon, said = one_line(error).partition(":")
            raise SpecError(f"{PREFIX}{setting.upper()}{colon}{said}") from None  # its cause would show what was stated


def unknown_variables(environment: Iterable[str]) -> list[str]:
    """Variables of our prefix that nothing of ours reads. Kubernetes makes some from the names of its services."""
    known = {PREFIX + name for name in (*_settings(), *OTHERS)}
    return sorted(name for name in environment if name.startswith(PREFIX) and name not in known)


def _settings() -> list[str]:
    return [name.upper() for name in (*ServiceSettings.model_fields, *Settings.model_fields)]
