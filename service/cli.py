"""`meshwright serve`: the service in this terminal, hung on the root command by an entry point."""

from typing import TYPE_CHECKING, Annotated

import typer

from cost_models.errors import SpecError

if TYPE_CHECKING:
    from service.settings import ServiceSettings

Host = Annotated[str | None, typer.Option(help="Address to listen on; loopback unless told otherwise.")]
Port = Annotated[int | None, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")]
Processes = Annotated[int | None, typer.Option("--solver-processes", min=1, help="Solves at the same time.")]
InsecureNoAuth = Annotated[
    bool, typer.Option("--insecure-no-auth", help="Ask nobody who they are, and listen beyond this machine even so.")
]


def serve(
    host: Host = None, port: Port = None, solver_processes: Processes = None, insecure_no_auth: InsecureNoAuth = False
) -> None:
    """Serve plans over HTTP."""
    import os

    import structlog

    from service.app import create_app
    from service.observability import configure
    from service.serving import run
    from service.settings import ServiceSettings, unknown_variables

    authentication = "none" if insecure_no_auth else None
    stated = {"host": host, "port": port, "solver_processes": solver_processes, "authentication": authentication}
    settings = ServiceSettings.stated(**{key: value for key, value in stated.items() if value is not None})
    _check(settings)
    configure(settings.log_level, settings.log_format)
    if unknown := unknown_variables(os.environ):
        structlog.get_logger(__name__).warning("no settings of this release", variables=unknown)
    if not run(create_app(settings), settings):
        raise typer.Exit(1)


def _check(settings: "ServiceSettings") -> None:
    """Refuse what could never be served, before anything is started.

    Raises:
        SpecError: in one line, why.
    """
    from service.security.oidc import verifier
    from service.storage.database import Database

    verifier(settings)
    Database(settings.database_address).close()
    _check_reach(settings)


def _check_reach(settings: "ServiceSettings") -> None:
    """Refuse to listen beyond this machine before anybody can be told from anybody else.

    Raises:
        SpecError: there is no good key, no provider of tokens, and nobody has said that it is meant so.
    """
    from service.errors import ServiceError
    from service.limits import is_loopback
    from service.storage.database import Database
    from service.storage.tables import now

    if is_loopback(settings.host) or settings.authentication != "auto" or settings.oidc_issuer is not None:
        return
    database = Database(settings.database_address, retry_seconds=settings.database_retry_seconds)
    try:
        if database.read(lambda work: work.api_keys.good_exist(now())):
            return
        why = "there is no good API key"
    except ServiceError as error:
        why = f"the database shows no API keys ({error})"
    finally:
        database.close()
    raise SpecError(
        f"host {settings.host} is reachable from other machines and {why}; meshwright keys create, or listen on "
        "127.0.0.1, or say MESHWRIGHT_AUTHENTICATION=required (keys come later) or --insecure-no-auth"
    )
