"""The application under uvicorn, ending in time: who waits or watches is answered as soon as the end is asked for."""

import asyncio
import contextlib
import gc
import socket
from types import FrameType

import uvicorn
from fastapi import FastAPI

from service.heads import BoundedHeads
from service.settings import ServiceSettings


class Server(uvicorn.Server):
    """Ends waits and event streams at once; uvicorn alone would let them go on until its patience is over."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve, with all that was loaded for good out of the garbage collector's sight.

        To look through it takes more than a tenth of a second, during which nobody is answered.
        """
        await super().startup(sockets)
        gc.collect()
        gc.freeze()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal came."""
        parts = getattr(getattr(self.config.app, "state", None), "runtime", None)
        if parts is not None:
            asyncio.get_running_loop().call_soon_threadsafe(parts.planning.end_waits)
        super().handle_exit(sig, frame)


def run(app: FastAPI, settings: ServiceSettings) -> bool:
    """Serve until told to end; whether it ever served."""
    server = Server(
        uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            log_config=None,
            http=BoundedHeads.within(settings.client_seconds),
            ws="none",
            access_log=False,
            server_header=False,
            proxy_headers=settings.forwarded_allow_ips is not None,
            forwarded_allow_ips=settings.forwarded_allow_ips,
            timeout_graceful_shutdown=max(1, int(settings.shutdown_seconds)),
        )
    )
    with contextlib.suppress(SystemExit):  # an address in use, which uvicorn has logged; its 3 means another thing here
        server.run()
    return server.started
