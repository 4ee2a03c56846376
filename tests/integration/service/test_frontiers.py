"""Frontiers and ladders over HTTP, made by the planner itself."""

from typing import Any

import pytest

from planner.frontier import Frontier, Ladder
from tests.integration.service.test_live import SMALL
from tests.unit.service.client import FakePool, InlinePool, client

pytestmark = pytest.mark.usefixtures("databases")
WAIT = {"Prefer": "wait=60"}


class Worker(InlinePool):
    """Plans in a thread."""


def asked(path: str, **own: Any) -> tuple[Any, Any, Any]:
    """The answer, the same looked up again, and the same asked again."""
    with client(Worker()) as http:
        made = http.post(path, json={**SMALL, **own}, headers=WAIT)
        assert made.status_code == 200, made.text
        place = made.headers["location"]
        assert http.get(place.replace(path, "/v1/plans")).status_code == 404, "an answer is of one kind"
        assert http.delete(place).status_code == 409
        [listed] = http.get(path, params={"state": "done"}).json()["items"]
        assert place == f"{path}/{listed['id']}"
        return made, http.get(place), http.post(path, json={**SMALL, **own})


def test_a_frontier_is_made_kept_and_found_again() -> None:
    made, kept, again = asked("/v1/frontiers", points=5)
    found = Frontier.model_validate_json(made.content)
    assert found.points
    assert made.headers["location"] == f"/v1/frontiers/{found.envelope.id}"
    assert kept.content == again.content == made.content
    assert kept.headers["etag"]


def test_a_ladder_has_a_rung_for_each_number_of_devices() -> None:
    made, kept, again = asked("/v1/ladders")
    found = Ladder.model_validate_json(made.content)
    assert [rung.gpus for rung in found.rungs] == [1, 2]
    assert kept.content == again.content == made.content


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("/v1/frontiers", {"axes": ["time", "beauty"]}),
        ("/v1/frontiers", {"points": 1}),
        ("/v1/ladders", {"low": 0}),
        ("/v1/plans", {"points": 5}),
    ],
)
def test_bad_options_are_refused(path: str, own: dict[str, Any]) -> None:
    with client() as http:
        assert http.post(path, json={**SMALL, **own}).status_code == 422


def test_a_frontier_is_watched_and_cancelled() -> None:
    pool = FakePool(held=True)
    with client(pool) as http:
        place = http.post("/v1/frontiers", json=SMALL).headers["location"]
        while not pool.tasks:
            http.get(place)
        assert (pool.tasks[0].verb, pool.tasks[0].options) == ("frontier", {"axes": ["time", "memory"], "points": 20})
        assert http.delete(place).status_code == 200
        with http.stream("GET", f"{place}/events") as stream:
            assert "event: ended" in list(stream.iter_lines())
        assert http.get(place).status_code == 410
        assert http.get("/v1/plans").json()["items"] == []
