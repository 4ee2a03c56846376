"""How the application is served."""

import asyncio
import gc

import pytest
import uvicorn
from fastapi import FastAPI

from service.serving import Server


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
