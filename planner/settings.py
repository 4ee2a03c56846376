"""Settings of the command line and of every front door: environment variables with the prefix MESHWRIGHT_."""

from functools import cache
from pathlib import Path

from pydantic import PositiveFloat
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Read once, when first asked for."""

    model_config = SettingsConfigDict(env_prefix="MESHWRIGHT_", extra="ignore", frozen=True)

    progress_seconds: PositiveFloat = 5.0
    """Where standard error is no terminal, progress is a line at most this often."""
    calibration: Path | None = None
    """A calibration that replaces the shipped one: what `meshwright calibrate --site` wrote."""
    width: int | None = None
    """Width of tables; the terminal's where it is left out. [columns]"""


@cache
def settings() -> Settings:
    """The settings of this process."""
    return Settings()
