"""What is bound to be refused is refused at once, with its place; nothing of it is queued."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from cost_models import catalog
from planner.fronts import MOST_RUNGS
from tests.unit.service.client import JOB, FakePool, client

pytestmark = pytest.mark.usefixtures("databases")
POOL = JOB["cluster"]["pools"][0]
DEVICE = {**catalog.device("a100-sxm-80gb").model_dump(mode="json"), "name": "lab-thing"}
HUGE = {"pools": [{**POOL, "nodes": 2048}]}
TWO = {"pools": [POOL, {**POOL, "nodes": 2}]}
SEVEN = {**JOB["training"], "global_batch_size": 7}
LARGE = {**JOB["training"], "global_batch_size": 2**20}


@pytest.fixture(scope="module")
def http() -> Any:
    pool = FakePool()
    with client(pool) as found:
        yield found
    assert pool.tasks == []


@pytest.mark.parametrize(
    ("verb", "change", "pointer", "detail"),
    [
        ("ladders", {"low": 8, "high": 4}, "/low", "8..4 is no range within the 8 GPUs"),
        ("ladders", {"low": 9}, "/low", "9..8 is no range within the 8 GPUs"),
        ("ladders", {"high": 9}, "/high", "1..9 goes beyond the 8 GPUs of the cluster"),
        ("ladders", {"high": 10**15}, "/high", f"1..{10**15} goes beyond the 8 GPUs of the cluster"),
        ("ladders", {"high": 8, "constraints": {"max_gpus": 4}}, "/high", "goes beyond constraints.max_gpus 4"),
        (
            "ladders",
            {"cluster": HUGE, "training": LARGE},
            "/low",
            f"1..16384 has 2055 rungs, more than the {MOST_RUNGS}",
        ),
        (
            "ladders",
            {"cluster": {"pools": [{**POOL, "nodes": 4}]}, "low": 9, "high": 15},
            "/high",
            "no number of whole",
        ),
        (
            "frontiers",
            {"axes": ["time", "gpus"], "cluster": HUGE, "training": LARGE},
            "/cluster",
            f"has 2055 rungs, more than the {MOST_RUNGS}",
        ),
        ("frontiers", {"axes": ["time", "cost"]}, "/cluster/pools/0/price_per_gpu_hour", "the axis cost needs it"),
        ("frontiers", {"cluster": TWO}, "/axes", "is for one pool, cluster.pools lists 2"),
        ("frontiers", {"points": 10**6}, "/points", "less than or equal to 200"),
        ("plans", {"objective": "cost"}, "/cluster/pools/0/price_per_gpu_hour", "objective is cost"),
        (
            "plans",
            {"constraints": {"max_cost_per_step": 1}},
            "/cluster/pools/0/price_per_gpu_hour",
            "the cost of a step needs it",
        ),
        ("plans", {"constraints": {"tensor_parallel": 5}}, "/constraints/tensor_parallel", "5 does not divide"),
        ("plans", {"training": SEVEN, "constraints": {"data_parallel": 8}}, "/training/global_batch_size", "7"),
    ],
)
def test_what_no_worker_could_answer(
    http: TestClient, verb: str, change: dict[str, Any], pointer: str, detail: str
) -> None:
    answer = http.post(f"/v1/{verb}", json={**JOB, **change})
    assert answer.status_code == 422, answer.text
    found = answer.json()
    assert detail in found["detail"]
    assert [error["pointer"] for error in found["errors"]] == [pointer]
    assert http.get(f"/v1/{verb}").json()["items"] == []


def test_every_unknown_name_is_pointed_at(http: TestClient) -> None:
    wrong = {"pools": [{"device": "a100-sxn-80gb"}, POOL, {"device": "h10"}]}
    for path in ("/v1/plans", "/v1/estimates", "/v1/frontiers", "/v1/ladders"):
        found = http.post(path, json={**JOB, "model": {"preset": "lama-2-7b"}, "cluster": wrong})
        assert found.status_code == 422
        told = {error["pointer"]: error["detail"] for error in found.json()["errors"]}
        assert list(told) == ["/model/preset", "/cluster/pools/0/device", "/cluster/pools/2/device"]
        assert "did you mean llama-2-7b" in told["/model/preset"]
        assert "did you mean a100-sxm-80gb" in told["/cluster/pools/0/device"]
        assert "unknown device 'h10'" in told["/cluster/pools/2/device"]
        assert all(text.partition("; did")[0] in found.json()["detail"] for text in told.values())


def test_a_clusters_own_keys_are_pointed_at(http: TestClient) -> None:
    for pool, pointer in (({"device": "h10"}, "device"), ({**POOL, "inter_node_link": "string"}, "inter_node_link")):
        found = http.post("/v1/clusters", json={"name": "lab", "pools": [POOL, pool]}).json()
        assert [error["pointer"] for error in found["errors"]] == [f"/pools/1/{pointer}"]


@pytest.mark.parametrize(
    ("changes", "pointer", "detail"),
    [
        ({"training": {**JOB["training"], "sequence_length": 2**30}}, "/training/sequence_length", "exceeds 134217728"),
        *[
            ({"cluster": {"pools": [POOL, {**POOL, key: text}]}}, f"/cluster/pools/1/{key}", detail)
            for key in ("intra_node_link", "inter_node_link")
            for text, detail in (("string", "unknown link 'string'"), ("0GB/s", "bandwidth"))
        ],
        ({"constraints": {"min_gpus": 9}}, "/constraints/min_gpus", "exceeds the 8 GPUs"),
        ({"model": {"config": {"hidden_size": 8}}}, "/model/config", "num_attention_heads is missing"),
    ],
)
def test_rules_between_numbers_have_a_place(
    http: TestClient, changes: dict[str, Any], pointer: str, detail: str
) -> None:
    found = http.post("/v1/plans", json={**JOB, **changes}).json()
    assert [error["pointer"] for error in found["errors"]] == [pointer]
    assert detail in found["errors"][0]["detail"]


SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 64}
POSTED = [
    ("/v1/models", {"architecture": {"hidden_size": 64, "vocab_size": 64}}, 3, "/architecture/num_hidden_layers"),
    ("/v1/models", {"architecture": {**SIZES, "head_dim": 0, "vocab_size": 10**9}}, 2, "/architecture/head_dim"),
    ("/v1/models", {"config": {"hidden_size": 64}}, 1, "/config"),
    ("/v1/clusters", {"pools": [POOL, {**POOL, "inter_node_link": "nope"}]}, 1, "/pools/1/inter_node_link"),
    ("/v1/clusters", {"pools": [POOL], "between_pools": "nope"}, 1, "/between_pools"),
    ("/v1/devices", {"device": DEVICE, "inter_node_link": "10Xb/s"}, 1, "/inter_node_link"),
    ("/v1/devices", {"device": {**DEVICE, "link": "nope"}}, 1, "/intra_node_link"),
]


@pytest.mark.parametrize(("path", "body", "count", "first"), POSTED)
def test_what_is_registered_is_pointed_at_in_its_own_body(
    http: TestClient, path: str, body: dict[str, Any], count: int, first: str
) -> None:
    answer = http.post(path, json={"name": "lab-thing", **body})
    assert answer.status_code == 422
    pointers = [error["pointer"] for error in answer.json()["errors"]]
    assert (len(pointers), pointers[0]) == (count, first)


def test_an_inline_device_says_what_is_wrong_with_it(http: TestClient) -> None:
    device = {"name": "mine", "kind": "gpu", "memory": "80GiB", "speed": 3}
    found = http.post("/v1/plans", json={**JOB, "cluster": {"pools": [{"device": device}]}}).json()
    pointers = [error["pointer"] for error in found["errors"]]
    assert "/cluster/pools/0/device" not in pointers, "that it is no name either is no reason"
    assert "/cluster/pools/0/device/speed" in pointers
    assert all(pointer.startswith("/cluster/pools/0/device/") for pointer in pointers)
    assert "valid string" not in found["detail"]
    neither = http.post("/v1/plans", json={**JOB, "cluster": {"pools": [{"device": 5}]}}).json()
    [error] = neither["errors"]
    assert error["pointer"] == "/cluster/pools/0/device"
    assert "valid string; or " in error["detail"]
