"""Devices of a project: registered once, named by pools and clusters, kept as they were by what was made with them."""

from typing import Any

import pytest

from service.routes.devices import EXAMPLE
from tests.unit.service.client import FakePool, client
from tests.unit.service.test_resources import planned

pytestmark = pytest.mark.usefixtures("databases")
NAMED = {"pools": [{"device": "lab-node"}]}
TINY = {
    "model": {"architecture": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
                               "intermediate_size": 128, "vocab_size": 256}},
    "training": {"sequence_length": 32, "global_batch_size": 4},
}  # fmt: skip


def asked(pool: FakePool, number: int = -1) -> Any:
    """The first pool of what was planned last."""
    return pool.tasks[number].asked.cluster.pools[0]


def test_a_registered_device_is_planned_by_its_name() -> None:
    pool = FakePool()
    with client(pool) as http:
        made = http.post("/v1/devices", json=EXAMPLE)
        assert made.status_code == 201, made.text
        assert (made.json()["origin"], made.json()["family"]) == ("project", "cpu")
        assert http.get(made.headers["location"]).json() == made.json()
        listed = http.get("/v1/devices", params={"text": "lab-"}).json()["items"]
        assert listed == [made.json()]
        planned(http, **TINY, cluster=NAMED)
        assert asked(pool).device.usable_memory_bytes == 2**31
        assert (asked(pool).gpus_per_node, asked(pool).intra_node_link.name) == (2, "lab-node-link")
        planned(http, **TINY, cluster={"pools": [{"device": "lab-node", "gpus_per_node": 4, "nodes": 2}]})
        assert (asked(pool).gpus_per_node, asked(pool).nodes) == (4, 2)


def test_spelled_out_it_is_the_same_request() -> None:
    with client() as http:
        http.post("/v1/devices", json=EXAMPLE)
        place = planned(http, **TINY, cluster=NAMED)
        spelled_out = {key: value for key, value in EXAMPLE.items() if key != "name"}
        assert planned(http, **TINY, cluster={"pools": [spelled_out]}) == place


def test_a_cluster_keeps_what_the_name_stood_for() -> None:
    pool = FakePool()
    with client(pool) as http:
        http.post("/v1/devices", json=EXAMPLE)
        made = http.post("/v1/clusters", json={"name": "lab", **NAMED})
        assert (made.status_code, made.json()["gpus"]) == (201, 2)
        assert http.delete("/v1/devices/lab-node").status_code == 204
        planned(http, **TINY, cluster="lab")
        assert asked(pool).device.name == "lab-node"


def test_names_are_the_projects_own_and_taken_once() -> None:
    with client() as http:
        unknown = http.post("/v1/plans", json={**TINY, "cluster": NAMED})
        assert (unknown.status_code, unknown.json()["errors"][0]["pointer"]) == (422, "/cluster/pools/0/device")
        assert "the project has registered none" in unknown.json()["detail"]
        assert http.post("/v1/devices", json=EXAMPLE).status_code == 201
        assert http.post("/v1/devices", json=EXAMPLE).status_code == 409
        taken = http.post("/v1/devices", json={**EXAMPLE, "name": "a100-sxm-80gb"})
        assert (taken.status_code, "the catalogue has" in taken.json()["detail"]) == (409, True)
        wrong = http.post("/v1/devices", json={**EXAMPLE, "name": "other", "intra_node_link": "string"})
        assert (wrong.status_code, "link" in wrong.json()["detail"]) == (422, True)
        facts: Any = EXAMPLE["device"]
        small = {**facts, "usable_memory_bytes": "3GiB"}
        assert http.post("/v1/devices", json={**EXAMPLE, "name": "other", "device": small}).status_code == 422
        assert http.get("/v1/devices/other").status_code == 404
        assert http.delete("/v1/devices/a100-sxm-80gb").status_code == 404
