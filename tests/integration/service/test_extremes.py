"""Extreme values at every place of a good request: refused or answered, never a server error."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from service.reading import CONFIGURATION_EXAMPLE, JOB_EXAMPLE
from tests.unit.service.client import client

GOOD: dict[str, Any] = {
    **JOB_EXAMPLE,
    "model": {
        "architecture": {
            "hidden_size": 1024,
            "num_hidden_layers": 32,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "intermediate_size": 4096,
            "vocab_size": 32000,
        }
    },
    "objective": "throughput",
    "constraints": {"oom_risk": 0.01, "max_step_seconds": 100.0, "zero_stage": 3},
    "configuration": CONFIGURATION_EXAMPLE,
}
CLUSTER_EXTRAS = {"host_memory": "1TiB", "nvme": 0, "price_per_gpu_hour": 2.0, "intra_node_link": "300GB/s"}
GOOD["cluster"] = {"pools": [{**JOB_EXAMPLE["cluster"]["pools"][0], **CLUSTER_EXTRAS}]}
EXTREMES: tuple[Any, ...] = (
    *(0, -1, 1, 3, 2**31, 2**53 - 1, 10**12),
    *(1e-300, 5e-324, 1e300, -0.5, 1.5, 0.999999999),
    *(None, True, "", "x" * 5000, "1e400GiB", "\x00", "🦙", [], {}, [[]], {"min": 1, "max": 2**53 - 1}),
)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for key, below in value.items():
            yield from leaves(below, (*path, key))
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from leaves(below, (*path, index))
    if path:
        yield path


def replaced(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    request = copy.deepcopy(GOOD)
    place: Any = request
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return request


@pytest.fixture(scope="module")
def http() -> Iterator[TestClient]:
    with client() as found:
        yield found


def test_the_request_is_good_as_it_stands(http: TestClient) -> None:
    answer = http.post("/v1/estimates", json=GOOD)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("path", list(leaves(GOOD)), ids=lambda path: ".".join(map(str, path)))
def test_no_extreme_value_breaks_an_estimate(http: TestClient, path: tuple[Any, ...]) -> None:
    broken = {}
    for value in EXTREMES:
        answer = http.post("/v1/estimates", json=replaced(path, value))
        if answer.status_code >= 500:
            broken[repr(value)[:40]] = answer.text
    assert not broken
