"""Ledgers of every architecture against PyTorch's own tracker: few layers of real widths, all shipped variants."""

from functools import cache
from statistics import fmean
from typing import Any

from planner.validate.tracker_report import WORST_EQUAL, architectures, shipped

ASKED = {
    "gpt2",
    "opt",
    "bloom",
    "gpt_neox",
    "falcon",
    "mpt",
    "gemma",
    "gemma2",
    "gemma3_text",
    "phi",
    "phi3",
    "qwen2",
    "qwen3",
    "qwen3_moe",
    "mixtral",
    "gpt_oss",
    "deepseek_v2",
    "deepseek_v3",
    "mistral",
    "starcoder2",
    "olmo",
    "olmo2",
    "granite",
    "cohere",
    "glm",
    "glm4",
    "llama",
}


@cache
def entries() -> dict[str, dict[str, Any]]:
    return {entry["architecture"]: entry for entry in architectures(shipped())}


def errors() -> list[float]:
    return [abs(row.error()) for row in shipped()]


def test_every_listed_architecture_is_tracked() -> None:
    assert set(entries()) >= ASKED


def test_no_ledger_differs_from_the_tracker() -> None:
    assert not {(name, each) for name, entry in entries().items() for each in entry["differs"]}


def test_errors_are_far_below_what_is_asked() -> None:
    found = errors()
    assert max(found) <= WORST_EQUAL
    assert fmean(found) <= 0.0005
