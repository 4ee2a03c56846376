"""Who asks. The one place where authentication will decide; until then everybody is the default project."""

from typing import Annotated, Final

from fastapi import Depends
from pydantic import BaseModel, ConfigDict

DEFAULT_PROJECT: Final = "default"


class Caller(BaseModel):
    """A caller and the project whose rows it sees. Every query takes `project_id` from here."""

    model_config = ConfigDict(frozen=True)

    project_id: str = DEFAULT_PROJECT
    name: str = "anonymous"


async def caller() -> Caller:
    """The caller of this request."""
    return Caller()


CurrentCaller = Annotated[Caller, Depends(caller)]
