"""`meshwright serve`: the service in this terminal, hung on the root command by an entry point."""

from typing import Annotated

import typer

from cost_models.errors import SpecError

Host = Annotated[str | None, typer.Option(help="Address to listen on; loopback unless told otherwise.")]
Port = Annotated[int | None, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")]
Processes = Annotated[int | None, typer.Option("--solver-processes", min=1, help="Solves at the same time.")]
AllowRemote = Annotated[
    bool, typer.Option("--allow-remote", help="Listen beyond this machine although nothing asks callers who they are.")
]


def serve(
    host: Host = None, port: Port = None, solver_processes: Processes = None, allow_remote: AllowRemote = False
) -> None:
    """Serve plans over HTTP."""
    import uvicorn

    from service.app import create_app
    from service.limits import is_loopback
    from service.observability import configure
    from service.settings import ServiceSettings

    stated = {"host": host, "port": port, "solver_processes": solver_processes, "allow_remote": allow_remote or None}
    settings = ServiceSettings.stated(**{key: value for key, value in stated.items() if value is not None})
    if not settings.allow_remote and not is_loopback(settings.host):
        raise SpecError(
            f"host {settings.host} is reachable from other machines and callers are not authenticated; "
            "listen on 127.0.0.1, or say --allow-remote"
        )
    configure(settings.log_level, settings.log_format)
    uvicorn.run(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=max(1, int(settings.shutdown_seconds)),
    )
