"""Answers that are asked for and looked up over HTTP, and waited for as long as the caller likes."""

from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from fastapi import Depends, Path, Response
from fastapi.sse import ServerSentEvent

from service.answers import answer, events
from service.callers import Caller, CurrentCaller
from service.dependencies import CurrentPlanning, PreferredWait, RequestId
from service.orders import PlanOrder
from service.solving.service import Planning
from service.solving.worker import Verb
from service.storage.repositories.plans import Kinds


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks, how long they like to wait, and the id of the request."""

    caller: Caller
    planning: Planning
    wait: float | None
    request_id: str | None

    async def ask(self, verb: Verb, order: PlanOrder, key: str | None) -> Response:
        """Accept, and answer with what there is when the wait is over."""
        view = await self.planning.ask(self.caller, order, key=key, wait=self.wait, verb=verb)
        headers = {"Location": f"/v1/{verb}s/{view.id}"}
        if self.wait is not None:
            headers["Preference-Applied"] = f"wait={self.wait:g}"
        return answer(view, headers, self.request_id)

    async def look(self, kinds: Kinds, answer_id: str, if_none_match: str | None) -> Response:
        """Answer with what there is under an id when it has ended, or the wait is over."""
        view = await self.planning.look(self.caller, answer_id, wait=self.wait or 0.0, kinds=kinds)
        return answer(view, {}, self.request_id, if_none_match=if_none_match)


Events: TypeAlias = AsyncIterator[ServerSentEvent]


def watched(kinds: Kinds, parameter: str) -> Callable[..., Coroutine[Any, Any, Events]]:
    """The events of an answer, whose id is a parameter of the path; refused before they begin where there is none."""

    async def begin(
        answer_id: Annotated[str, Path(alias=parameter, max_length=64, description="as in `envelope.id`")],
        caller: CurrentCaller,
        planning: CurrentPlanning,
    ) -> Events:
        found = await planning.watchable(caller, answer_id, kinds=kinds)
        return events(planning.follow(caller, found.id, kinds=kinds))

    return begin


async def _asker(caller: CurrentCaller, planning: CurrentPlanning, wait: PreferredWait, request_id: RequestId) -> Asker:
    return Asker(caller, planning, wait, request_id)


CurrentAsker = Annotated[Asker, Depends(_asker)]
