"""Ids sort by time, within a process and by the clock."""

import time
import uuid

from service.identifiers import new_id


def test_ids_keep_their_order_and_are_version_7() -> None:
    found = [new_id() for _ in range(20_000)]
    assert found == sorted(found)
    assert len(set(found)) == len(found)
    assert {uuid.UUID(text).version for text in found[:100]} == {7}
    assert {uuid.UUID(text).variant for text in found[:100]} == {uuid.RFC_4122}


def test_an_id_tells_its_time() -> None:
    before = time.time_ns() // 1_000_000
    stamp = uuid.UUID(new_id()).int >> 80
    assert before - 1000 <= stamp <= time.time_ns() // 1_000_000 + 1000
