"""The queue is fair: projects take turns, however much one of them has waiting."""

from collections import Counter

import pytest

from service.storage.database import Database
from service.storage.repositories import Repositories
from service.storage.repositories.solves import Held
from service.storage.tables import DEFAULT_PROJECT, Project, Solve
from tests.unit.service.storage.claimants import claim, taken_together
from tests.unit.service.storage.rows import calibration, solve

FEW, MANY = "few", DEFAULT_PROJECT


@pytest.fixture
def constants(database: Database) -> str:
    version = calibration()

    def make(work: Repositories) -> None:
        work.calibrations.add(version)
        for name in (FEW, "third"):
            work.projects.add(Project(id=name, name=name))

    database.write(make)
    return version.id


def waiting(database: Database, constants: str, project: str, count: int) -> list[str]:
    rows = [solve(constants, project_id=project) for _ in range(count)]

    def add(work: Repositories) -> None:
        for row in rows:
            work.solves.add(row)

    database.write(add)
    return [row.id for row in rows]


def end(database: Database, row: Solve) -> None:
    assert database.write(lambda work: work.solves.finish(Held(row.id, row.fence), "done"))


def one_by_one(database: Database, count: int) -> list[str]:
    """The projects of solves that a single worker takes one after the other."""
    turns = []
    for _ in range(count):
        [row] = claim(database, most=1)
        turns.append(row.project_id)
        end(database, row)
    return turns


def test_one_worker_serves_projects_in_turn(database: Database, constants: str) -> None:
    many = waiting(database, constants, MANY, 30)
    waiting(database, constants, FEW, 2)
    assert one_by_one(database, 5) == [MANY, FEW, MANY, FEW, MANY]
    waiting(database, constants, "third", 1)
    waiting(database, constants, FEW, 1)
    assert one_by_one(database, 3) == ["third", FEW, MANY], "whoever had no turn, then the longest ago"
    [row] = claim(database, most=1)
    assert row.id == many[4], "within a project the oldest is first"


def test_whoever_has_the_fewest_under_way_is_next(database: Database, constants: str) -> None:
    waiting(database, constants, MANY, 30)
    assert [row.project_id for row in claim(database, most=4)] == [MANY] * 4, "alone it may have all"
    waiting(database, constants, FEW, 6)
    assert [row.project_id for row in claim(database, most=6)] == [FEW] * 4 + [FEW, MANY]


def test_a_claim_of_several_is_shared(database: Database, constants: str) -> None:
    for project in (MANY, FEW, "third"):
        waiting(database, constants, project, 20)
    assert Counter(row.project_id for row in claim(database, most=9)) == {MANY: 3, FEW: 3, "third": 3}


def test_a_silent_holders_solve_is_waiting_and_not_under_way(database: Database, constants: str) -> None:
    waiting(database, constants, MANY, 2)
    database.write(lambda work: work.solves.claim("gone", verbs=["plan"], most=2, seconds=-1))
    waiting(database, constants, FEW, 2)
    assert [row.project_id for row in claim(database, most=4)] == [FEW, MANY, FEW, MANY]


def test_two_claimants_share_several_projects_without_overlap(database: Database, constants: str) -> None:
    ids = [solve_id for project in (MANY, FEW, "third") for solve_id in waiting(database, constants, project, 12)]
    assert sorted(taken_together(database)) == sorted(ids)
