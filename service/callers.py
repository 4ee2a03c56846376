"""Who asks: put into the request by `service.security.gate`, checked here against what the operation asks for."""

from datetime import datetime
from typing import Annotated, Final, Literal

from fastapi import Depends, Request
from pydantic import BaseModel, ConfigDict, Field

from service.errors import Forbidden, Unauthenticated
from service.security.access import ACCESS, SCOPES, Scope, grants

DEFAULT_PROJECT: Final = "default"


class Caller(BaseModel):
    """A caller and the project whose rows it sees. Every query takes `project_id` from here."""

    model_config = ConfigDict(frozen=True)

    project_id: str = DEFAULT_PROJECT
    name: str = "anonymous"
    key_id: str | None = None
    """Of the API key, or the subject of the bearer token; None: nobody was asked."""
    scopes: frozenset[Scope] = Field(default=frozenset(SCOPES))
    shows: Literal["nothing", "key", "token"] = "nothing"
    until: datetime | None = None
    """When its bearer token ends; keys are looked up instead."""
    requests_per_minute: int | None = None
    """Of the key itself; None: what the installation allows."""


async def authorized(request: Request) -> None:
    """Let the request pass if its caller may do what the operation does.

    Raises:
        Unauthenticated: the operation is not public and nobody is known to ask.
        Forbidden: the caller lacks the scope, or the operation is in no row of the table.
    """
    operation = getattr(request.scope.get("route"), "name", None)
    access = ACCESS.get(str(operation))
    if access == "public":
        return
    found: Caller | None = request.scope.get("state", {}).get("caller")
    if found is None:
        raise Unauthenticated("say who asks: Authorization: Bearer KEY")
    if access is None:
        raise Forbidden(f"{operation} is declared for nobody")
    if not grants(found.scopes, access):
        raise Forbidden(f"{operation} needs the scope {access}; the key has {', '.join(sorted(found.scopes))}")


async def caller(request: Request) -> Caller:
    """The caller of this request, whom `authorized` has let pass."""
    found: Caller = request.scope["state"]["caller"]
    return found


CurrentCaller = Annotated[Caller, Depends(caller)]
