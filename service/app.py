"""The application: settings in, FastAPI out."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI
from fastapi.routing import APIRoute

from planner.version import __version__
from service import document, interface, problems, tracing
from service.callers import authorized
from service.limits import BodyLimit, Head
from service.observability import RequestLog
from service.reading import StrictRoute
from service.routes import (
    audit,
    calibrations,
    clusters,
    devices,
    estimates,
    exports,
    frontiers,
    health,
    history,
    measurements,
    metrics,
    models,
    plans,
)
from service.runtime import runtime
from service.security.gate import Gate
from service.settings import ServiceSettings
from service.solving.pool import SolverPool

DESCRIPTION = """Ask how a model should be trained on a cluster, before a GPU is taken.

Errors are RFC 9457 problem+json. Infeasible is a result: 200 with `status` infeasible and its reasons."""

RESOURCES = (
    plans,
    exports,
    estimates,
    frontiers,
    measurements,
    history,
    calibrations,
    models,
    clusters,
    devices,
    audit,
    metrics,
    health,
)
"""Modules with a `router`, in the order of the OpenAPI document."""


def create_app(
    settings: ServiceSettings | None = None, *, pool: SolverPool | None = None, estimates_pool: SolverPool | None = None
) -> FastAPI:
    """The service. `pool` and `estimates_pool` replace the solver processes (tests, other schedulers)."""
    settings = settings or ServiceSettings()
    app = FastAPI(
        title="Meshwright",
        version=__version__,
        description=DESCRIPTION,
        lifespan=_lifespan,
        generate_unique_id_function=_operation_id,
        docs_url=None,  # service.interface serves it
        redoc_url=None,
        redirect_slashes=False,  # a redirect would name whatever host the request named
        dependencies=[Depends(authorized)],
        telemetry=tracing.TELEMETRY,
    )
    app.router.route_class = StrictRoute  # of the page at /docs
    app.state.settings = settings
    app.state.pools = (pool, estimates_pool)
    for module in RESOURCES:
        app.include_router(module.router)
    interface.install(app)
    problems.install(app)
    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes, seconds=settings.client_seconds)
    app.add_middleware(Head)
    app.add_middleware(Gate, settings=settings)
    app.add_middleware(RequestLog)  # the last added is the outermost
    app.openapi = lambda: document.of(app)  # type: ignore[method-assign]  # FastAPI's documented way to extend it
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: ServiceSettings = app.state.settings
    pool, estimates_pool = app.state.pools
    app.state.runtime = parts = runtime(settings, pool=pool, estimates_pool=estimates_pool)
    await parts.start(settings)
    try:
        yield
    finally:
        await parts.close()


def _operation_id(route: APIRoute) -> str:
    """The name of the function: stable, and what generated clients call their methods."""
    return route.name
