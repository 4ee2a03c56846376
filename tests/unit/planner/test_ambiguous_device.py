"""A device name that several devices share is planned, and said."""

import pytest

from cost_models.catalog import catalogue_hash
from planner import identity
from planner.request import PlanRequest
from planner.resolve import resolve


def assumptions(device: str) -> dict[str, tuple[object, str]]:
    request = PlanRequest.read({
        "model": {"preset": "llama-2-7b"},
        "cluster": {"pools": [{"device": device, "nodes": 1, "gpus_per_node": 8}]},
        "training": {"sequence_length": 4096, "global_batch_size": 64},
    })  # fmt: skip
    return {a.key: (a.value, str(a.from_)) for a in resolve(request).assumptions}


def test_an_ambiguous_name_is_an_assumption() -> None:
    value, why = assumptions("A100")["cluster.pools.0.device"]
    assert value == "a100-sxm-80gb"
    assert "a100-sxm-40gb" in why
    assert "a100-pcie-80gb" in why


@pytest.mark.parametrize("device", ["a100-sxm-80gb", "A100-80GB-SXM", "h200-sxm"])
def test_a_clear_name_is_none(device: str) -> None:
    assert "cluster.pools.0.device" not in assumptions(device)


def test_the_identity_of_the_catalogue_is_the_catalogues_own() -> None:
    assert identity.catalogue_hash() == catalogue_hash()
