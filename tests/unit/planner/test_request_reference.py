"""docs/requests.md: every example in it is legal, and the request that README.md sends is one."""

import json
import re
from importlib import import_module
from typing import Any

import pytest

from planner.constraints import Constraints
from planner.request import PlanRequest, load_request
from planner.resolve import resolve
from tests.contracts.tree import ROOT

REFERENCE = import_module("docs.generate_requests")
NEEDS: dict[str, dict[str, Any]] = {
    "cluster": {"pools": [{"device": "a100-sxm-80gb"}]},
    "pool": {"device": "a100-sxm-80gb"},
    "request": {
        "model": {"preset": "llama-2-7b"},
        "cluster": {"pools": [{"device": "a100-sxm-80gb"}]},
        "training": {"sequence_length": 4096, "global_batch_size": 128},
    },
    "training": {"sequence_length": 4096, "global_batch_size": 128},
    "batch": {"min": 1, "max": 512},
    "backend": {"name": "deepspeed"},
    "link": {"bandwidth": 1e9},
}
"""What a section's other keys must be for one of them to be read alone."""
TOGETHER = {"stage", "recompute", "device"}
"""Sections whose keys depend on each other: all their examples are read at once."""
KEYS = [
    (section, name)
    for section, model in REFERENCE.SECTIONS.items()
    if section not in TOGETHER
    for name in model.model_fields
]


@pytest.mark.parametrize(("section", "name"), KEYS, ids=[".".join(key) for key in KEYS])
def test_every_example_is_legal(section: str, name: str) -> None:
    value = REFERENCE.example(section, name)
    beside = {"method": "lora"} if (section, name) == ("training", "lora") else {}
    read = REFERENCE.SECTIONS[section].read({**NEEDS.get(section, {}), **beside, name: value})
    assert name in read.model_fields_set


@pytest.mark.parametrize("section", sorted(TOGETHER))
def test_examples_that_depend_on_each_other_are_legal(section: str) -> None:
    model = REFERENCE.SECTIONS[section]
    model.read({name: REFERENCE.example(section, name) for name in model.model_fields})


@pytest.mark.parametrize(
    "written", [2, [1, 2, 4], {"min": 2, "max": 8}, {"forbid": [8]}, {"values": [1, 2, 4], "max": 2}, "forbid"]
)
def test_every_form_of_a_constraint_is_legal(written: Any) -> None:
    text = (ROOT / "docs" / "requests.md").read_text(encoding="utf-8")
    assert f"| `tensor_parallel: {json.dumps(written).replace(chr(34), '')}` |" in text
    assert Constraints.read({"tensor_parallel": written}).tensor_parallel is not None


def test_a_key_without_a_meaning_or_an_example_is_refused() -> None:
    with pytest.raises(KeyError, match=r"examples.training.nothing is missing"):
        REFERENCE.example("training", "nothing")


def test_the_request_that_the_pages_send_is_there_and_resolves() -> None:
    for page in ("README.md", "docs/http.md"):
        (file,) = re.findall(r"curl .* -d @(\S+)", (ROOT / page).read_text(encoding="utf-8"))
        found = resolve(PlanRequest.read(load_request(ROOT / file)))
        assert found.model.name == "llama-2-7b"


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_file_resolves(path: Any) -> None:
    assert resolve(PlanRequest.read(load_request(path))).cluster.gpus > 0
