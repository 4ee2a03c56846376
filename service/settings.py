"""Settings of the service: environment variables with the prefix MESHWRIGHT_, overridden by the flags of `serve`."""

from typing import Any, Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from cost_models.errors import SpecError
from cost_models.specs.base import one_line


class ServiceSettings(BaseSettings):
    """One installation."""

    model_config = SettingsConfigDict(env_prefix="MESHWRIGHT_", extra="ignore", frozen=True)

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    solver_processes: PositiveInt = 1
    """Solves that run at the same time; each takes one core."""
    allow_remote: bool = False
    """Listen beyond this machine, and answer to any name (`Host` header) when listening on the loopback."""
    solve_timeout_seconds: PositiveFloat = 600.0
    """A solve is stopped after this."""
    estimate_timeout_seconds: PositiveFloat = 30.0
    """An estimate is stopped after this, or after the limit of solves where that is shorter."""
    max_waiting: PositiveInt = 256
    """Accepted plans that wait for a solver; more are refused."""
    max_wait_seconds: NonNegativeFloat = 60.0
    """Longest wait that `Prefer: wait` is granted."""
    max_body_bytes: PositiveInt = 2**20
    kept_plans: PositiveInt = 1000
    """Finished plans kept in memory; the oldest are forgotten first."""
    shutdown_seconds: PositiveFloat = 20.0
    """Open requests are given this long when the service is told to end."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_format: Literal["auto", "json", "console"] = "auto"
    """auto: console on a terminal, JSON lines elsewhere."""

    @classmethod
    def stated(cls, **flags: Any) -> Self:
        """The environment's settings under the flags.

        Raises:
            SpecError: a variable or flag is out of its range; the message names it.
        """
        try:
            return cls(**flags)
        except ValidationError as error:
            raise SpecError(f"MESHWRIGHT_{one_line(error)}") from error
