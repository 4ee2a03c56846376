"""Is it alive, is it ready; and the pages that problems point at."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict, Field

from service import problem_kinds as kinds
from service.dependencies import CurrentRuntime
from service.errors import NotFound
from service.problem_kinds import KINDS, Kind
from service.problems import MEDIA_TYPE, Problem, documented, problem, response
from service.reading import StrictRoute

router = APIRouter(tags=["health"], route_class=StrictRoute)


class Check(BaseModel):
    """One of the things that must be well."""

    model_config = ConfigDict(frozen=True)

    ready: bool
    detail: str | None = Field(default=None, description="why not, or what else is to be known")


class Unready(Problem):
    """What is not well, and what is."""

    checks: dict[str, Check]


class Health(BaseModel):
    """All is well."""

    model_config = ConfigDict(frozen=True)

    status: Literal["ok"] = "ok"


class Ready(Health):
    """All is well, one by one."""

    checks: dict[str, Check]


_CHECKS = {"service": Check(ready=True), "pool": Check(ready=False, detail="no solver process is up yet")}
_SHOWN = Unready(**dict(problem(kinds.NOT_SERVING, "pool: no solver process is up yet")), checks=_CHECKS)
_UNREADY: dict[int | str, dict[str, Any]] = {
    503: {
        "description": "not ready",
        "content": {
            MEDIA_TYPE: {
                "schema": {"$ref": "#/components/schemas/Unready"},
                "example": _SHOWN.model_dump(exclude_none=True, mode="json"),
            }
        },
    },
    **documented(kinds.INVALID),
}


@router.get("/livez", responses=documented(kinds.INVALID))
async def livez() -> Health:
    """The process answers. Nothing else is looked at."""
    return Health()


@router.get("/readyz", response_model=Ready, responses=_UNREADY)
async def readyz(runtime: CurrentRuntime) -> Ready | Response:
    """Requests would be worked on: a solver process is up, the database answers and lacks no migration."""
    seen = await runtime.readiness.look()
    checks = {name: Check(ready=found.ready, detail=found.detail) for name, found in seen.items()}
    if all(check.ready for check in checks.values()):
        return Ready(checks=checks)
    why = "; ".join(f"{name}: {found.detail}" for name, found in seen.items() if not found.ready)
    return response(Unready(**dict(problem(kinds.NOT_SERVING, why)), checks=checks))


@router.get("/healthz", response_model=Ready, responses=_UNREADY)
async def healthz(runtime: CurrentRuntime) -> Ready | Response:
    """The same as `/readyz`, under its other usual name."""
    return await readyz(runtime)


@router.get("/problems/{slug}", responses=documented(kinds.NOT_FOUND, kinds.INVALID))
async def problem_page(slug: Annotated[str, Path(max_length=64)]) -> Kind:
    """What a kind of problem means."""
    if slug not in KINDS:
        raise NotFound(f"no problem is called {slug!r}")
    return KINDS[slug]
