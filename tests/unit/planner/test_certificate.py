"""Certificates: equal plans give equal ones, right ones are verified, and no change of any field goes unseen."""

import copy
import itertools
import json
import re
from functools import cache
from typing import Any

import pytest

from cost_models import catalog
from cost_models.errors import BrokenRule, SpecError
from planner.certificate import Certificate
from planner.certifying import issue
from planner.planning import estimate, plan
from planner.request import PlanRequest
from planner.verifying import verify
from tests.scale import FULL, scaled

TINY: dict[str, Any] = {
    "model": {
        "architecture": {
            "model_type": "llama",
            "hidden_size": 2048,
            "num_hidden_layers": 4,
            "num_attention_heads": 16,
            "intermediate_size": 5632,
            "vocab_size": 32000,
        }
    },
    "cluster": {"pools": [{"device": "rtx-4090", "nodes": 1, "gpus_per_node": 2, "price_per_gpu_hour": 1.5}]},
    "training": {"sequence_length": 2048, "global_batch_size": 8},
    "backend": "megatron",
    "constraints": {"max_step_seconds": 60.0, "virtual_pipeline_stages": 1},
}
HUGE: dict[str, Any] = TINY | {
    "model": {"preset": "llama-2-7b"},
    "cluster": {"pools": [{"device": "rtx-4090", "nodes": 1, "gpus_per_node": 2}]},
    "constraints": {"offload": "forbid"},
}


@cache
def certificate(name: str, **changes: Any) -> Certificate:
    request = {"tiny": TINY, "huge": HUGE}[name] | changes
    found = plan(PlanRequest.read(copy.deepcopy(request)))
    return issue(found, catalog.calibration())


def faults(text: str) -> list[str]:
    """What verification finds, in its words."""
    try:
        checks = verify(text, catalog.calibration())
    except SpecError as error:
        return [f"unreadable: {error}"]
    return [f"{check.name}: {fault}" for check in checks for fault in check.faults]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("tiny", {}),
        ("huge", {}),
        ("tiny", {"objective": "memory"}),
        ("tiny", {"objective": ("gpus", "throughput")}),
        ("tiny", {"objective": "cost"}),
        ("tiny", {"objective_tolerance": 0.2}),
        ("tiny", {"backend": "any"}),
    ],
)
def test_a_certificate_is_verified(name: str, changes: dict[str, Any]) -> None:
    assert faults(certificate(name, **changes).to_json()) == []


def test_equal_plans_have_equal_certificates() -> None:
    again = plan(PlanRequest.read(copy.deepcopy(TINY)))
    assert issue(again, catalog.calibration()).to_json() == certificate("tiny").to_json()


def test_an_infeasible_answer_is_proven_by_memory() -> None:
    answer = certificate("huge")
    assert answer.status == "infeasible"
    assert {region.argument for part in answer.proof.pruned_by for region in part.regions} == {"memory"}


def test_an_estimate_has_none() -> None:
    priced = estimate(PlanRequest.read(copy.deepcopy(TINY) | {"configuration": {"data_parallel": 2}}))
    with pytest.raises(BrokenRule, match="proves nothing"):
        issue(priced, catalog.calibration())


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to every value, and to every list and mapping that has one."""
    if isinstance(value, dict | list) and value:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        inner = [leaf for key, item in items for leaf in _leaves(item, (*path, key))]
        return [path, *inner] if path and isinstance(value, list) else inner
    return [path]


def _changed(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value * 1.01 + 1e-3
        case str():
            return ("x" if value[:1] != "x" else "y") + value[1:]
        case None:
            return 1
        case list():
            return value[:-1] if value else [1]
    return {"x": 1}


def _tampered(document: dict[str, Any], path: tuple[Any, ...], *, sealed: bool) -> str:
    changed = copy.deepcopy(document)
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = _changed(place[path[-1]])
    if sealed:
        try:
            return Certificate.read(changed).sealed().to_json()
        except SpecError:
            pass
    return json.dumps(changed, indent=2) + "\n"


def _classes(name: str) -> list[tuple[str, tuple[Any, ...]]]:
    """One path of every kind of field: indices and names of one list or mapping alike; every path in the full run."""
    paths = _leaves(certificate(name).model_dump(mode="json"))
    known: dict[str, tuple[Any, ...]] = {}
    for path in paths:
        kind = ".".join("*" if isinstance(key, int) else str(key) for key in path)
        kind = re.sub(r"(domains|allocated_bytes\.\*|request)\..*", r"\1", kind)
        known.setdefault(".".join(map(str, path)) if FULL else kind, path)
    return list(known.items())


@pytest.mark.parametrize("name", ["tiny", "huge"])
def test_any_change_of_content_is_seen_by_its_hash(name: str) -> None:
    document = certificate(name).model_dump(mode="json")
    for kind, path in _classes(name):
        assert faults(_tampered(document, path, sealed=False)), kind


@pytest.mark.parametrize("name", ["tiny", "huge"])
def test_a_change_that_is_sealed_anew_is_seen_by_what_it_claims(name: str) -> None:
    document = certificate(name).model_dump(mode="json")
    found = {
        kind: faults(_tampered(document, path, sealed=True))
        for kind, path in _classes(name)[:: scaled(3, 1)]
        if path != ("content_sha256",)
    }
    assert [kind for kind, seen in found.items() if not seen] == []
    assert not [kind for kind, seen in found.items() if any(fault.startswith("integrity") for fault in seen)]


@pytest.mark.parametrize("byte", ["\n", " ", "{", '"', ",", ":", "0", "1", "e", "."])
def test_a_change_of_any_kind_of_byte_is_seen(byte: str) -> None:
    text = certificate("tiny").to_json()
    places = [match.start() for match in re.finditer(re.escape(byte), text)]
    for place in itertools.islice(places, 0, None, max(1, len(places) // 4)):
        for other in "\t", "7", "\x00":
            assert faults(text[:place] + other + text[place + 1 :]), (place, other)


def test_a_worse_configuration_is_refuted() -> None:
    best = certificate("tiny")
    found = plan(PlanRequest.read(copy.deepcopy(TINY)))
    rival = found.alternatives[0].configuration
    forged = best.model_copy(update={"configuration": rival}).sealed()
    assert any(fault.startswith("optimality") for fault in faults(forged.to_json()))
    with pytest.raises(BrokenRule, match="not what it claims"):
        issue(found.model_copy(update={"configuration": rival}), catalog.calibration())
