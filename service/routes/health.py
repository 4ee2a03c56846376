"""Is it alive, is it ready; and the pages that problems point at."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict

from service import problem_kinds as kinds
from service.dependencies import CurrentRuntime
from service.errors import Busy, NotFound
from service.problem_kinds import KINDS, Kind
from service.problems import documented, problem_of, response

router = APIRouter(tags=["health"])


class Health(BaseModel):
    """All is well."""

    model_config = ConfigDict(frozen=True)

    status: Literal["ok"] = "ok"


@router.get("/livez")
async def livez() -> Health:
    """The process answers. Nothing else is looked at."""
    return Health()


@router.get("/readyz", response_model=Health, responses=documented(kinds.BUSY))
async def readyz(runtime: CurrentRuntime) -> Health | Response:
    """Requests would be worked on: a solver process is up, the database answers and is at this release's migration."""
    why = await runtime.unready()
    return Health() if why is None else response(problem_of(Busy(why)))


@router.get("/problems/{slug}", responses=documented(kinds.NOT_FOUND))
async def problem_page(slug: Annotated[str, Path(max_length=64)]) -> Kind:
    """What a kind of problem means."""
    if slug not in KINDS:
        raise NotFound(f"no problem is called {slug!r}")
    return KINDS[slug]
