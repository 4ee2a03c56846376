"""How the application is served."""

import asyncio
import gc
import socket

import pytest
import uvicorn
from fastapi import FastAPI

from service.serving import Server, run
from service.settings import ServiceSettings


def test_what_is_loaded_for_good_is_out_of_the_garbage_collectors_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    async def started(*_: object, **__: object) -> None:
        return None

    monkeypatch.setattr(uvicorn.Server, "startup", started)
    before = gc.get_freeze_count()
    try:
        asyncio.run(Server(uvicorn.Config(FastAPI())).startup())
        assert gc.get_freeze_count() > before + 10_000
    finally:
        gc.unfreeze()


def test_an_address_in_use_ends_like_any_other_failure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert run(FastAPI(), ServiceSettings(port=taken.getsockname()[1])) is False


@pytest.mark.parametrize(("stated", "believed"), [(None, False), ("10.0.0.7", True)])
def test_what_a_proxy_says_is_believed_where_it_is_told(
    stated: str | None, believed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[uvicorn.Config] = []
    monkeypatch.setattr(Server, "run", lambda server: made.append(server.config))
    run(FastAPI(), ServiceSettings(forwarded_allow_ips=stated))
    assert made[0].proxy_headers is believed
    assert not believed or made[0].forwarded_allow_ips == stated
