"""Is it alive, is it ready; and the pages that problems point at."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict

from service import problems
from service.dependencies import CurrentPool
from service.errors import Busy, NotFound
from service.problems import KINDS, Kind, documented, problem_of, response

router = APIRouter(tags=["health"])


class Health(BaseModel):
    """All is well."""

    model_config = ConfigDict(frozen=True)

    status: Literal["ok"] = "ok"


@router.get("/livez")
async def livez() -> Health:
    """The process answers. Nothing else is looked at."""
    return Health()


@router.get("/readyz", response_model=Health, responses=documented(problems.BUSY))
async def readyz(pool: CurrentPool) -> Health | Response:
    """Requests would be worked on: a solver process is up."""
    return Health() if pool.ready else response(problem_of(Busy("no solver process is up yet")))


@router.get("/problems/{slug}", responses=documented(problems.NOT_FOUND))
async def problem_page(slug: Annotated[str, Path(max_length=64)]) -> Kind:
    """What a kind of problem means."""
    if slug not in KINDS:
        raise NotFound(f"no problem is called {slug!r}")
    return KINDS[slug]
