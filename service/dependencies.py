"""What routes ask for: the parts of this process, its settings, the preferences of a request.

All are coroutines: the framework sends plain functions to a thread, which costs more than what these do.
"""

import math
from typing import Annotated

from fastapi import Depends, Header, Request

from service.problems import request_id
from service.runtime import Runtime
from service.settings import ServiceSettings
from service.solving.service import Planning
from service.storage.database import Database


async def _settings(request: Request) -> ServiceSettings:
    found: ServiceSettings = request.app.state.settings
    return found


async def _runtime(request: Request) -> Runtime:
    found: Runtime = request.app.state.runtime
    return found


CurrentRuntime = Annotated[Runtime, Depends(_runtime)]


async def _planning(runtime: CurrentRuntime) -> Planning:
    return runtime.planning


async def _database(runtime: CurrentRuntime) -> Database:
    return runtime.database


Settings = Annotated[ServiceSettings, Depends(_settings)]
CurrentPlanning = Annotated[Planning, Depends(_planning)]
CurrentDatabase = Annotated[Database, Depends(_database)]


async def _instance(request: Request) -> str | None:
    return request_id(request.scope)


RequestId = Annotated[str | None, Depends(_instance)]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="a repetition with the same key and body makes nothing new",
    ),
]
IfNoneMatch = Annotated[str | None, Header(description="ETag of a copy at hand", max_length=2000)]


async def _wait(
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
