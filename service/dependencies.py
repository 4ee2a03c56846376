"""What routes ask for: the jobs of this process, its settings, the preferences of a request."""

import math
from typing import Annotated

from fastapi import Depends, Header, Request

from service.jobs.pool import WorkPool
from service.jobs.store import Jobs
from service.problems import request_id
from service.settings import ServiceSettings


def _settings(request: Request) -> ServiceSettings:
    found: ServiceSettings = request.app.state.settings
    return found


def _jobs(request: Request) -> Jobs:
    found: Jobs = request.app.state.jobs
    return found


def _estimates(request: Request) -> Jobs:
    found: Jobs = request.app.state.estimates
    return found


def _pool(request: Request) -> WorkPool:
    found: WorkPool = request.app.state.pool
    return found


Settings = Annotated[ServiceSettings, Depends(_settings)]
CurrentJobs = Annotated[Jobs, Depends(_jobs)]
Estimates = Annotated[Jobs, Depends(_estimates)]
CurrentPool = Annotated[WorkPool, Depends(_pool)]


def _instance(request: Request) -> str | None:
    return request_id(request.scope)


RequestId = Annotated[str | None, Depends(_instance)]


def _wait(
    settings: Settings,
    prefer: Annotated[
        list[str] | None, Header(description="`wait=10` (RFC 7240): answer with the plan if it is made in 10 s")
    ] = None,
) -> float | None:
    """Seconds that the caller prefers to wait, within the installation's limit. A preference is never an error."""
    for preference in ",".join(prefer or ()).split(","):
        name, _, value = preference.partition(";")[0].partition("=")
        if name.strip().lower() != "wait":
            continue
        try:
            seconds = float(value.strip().strip('"'))
        except ValueError:
            return None
        return min(seconds, settings.max_wait_seconds) if math.isfinite(seconds) and seconds >= 0 else None
    return None


PreferredWait = Annotated[float | None, Depends(_wait)]
