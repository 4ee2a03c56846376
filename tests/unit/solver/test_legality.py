"""Every legality rule has a case that triggers it, and its message names both sides."""

from pathlib import Path

import numpy as np
import pytest

from cost_models import catalog
from cost_models.specs.choices import BACKENDS, Backend
from solver.errors import BadLegality
from solver.legality import broken_rules, job_facts, layout_codes, legality
from solver.rules import Expression
from tests.oracle.instances import instance
from tests.unit.solver.facts import OWN as BACKEND_ROWS
from tests.unit.solver.facts import facts
from tests.unit.solver.legality_cases import COMMON, OWN

GOLDEN = Path(__file__).parents[2] / "golden" / "legality_messages.txt"
CASES = [("deepspeed", *case) for case in COMMON] + [(b, *case) for b, cases in OWN.items() for case in cases]


def messages() -> dict[str, str]:
    lines = (line.partition(": ")[::2] for line in GOLDEN.read_text(encoding="utf-8").splitlines())
    return dict(lines)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_base_row_is_legal(backend: Backend) -> None:
    assert set(BACKEND_ROWS) == set(BACKENDS)
    assert broken_rules(backend, facts(backend)) == ()


@pytest.mark.parametrize(("backend", "rule", "change"), CASES, ids=[f"{b}-{r}" for b, r, _ in CASES])
def test_a_rule_drops_what_breaks_it_and_says_why(backend: Backend, rule: str, change: dict[str, object]) -> None:
    broken = {r.id: message for r, message in broken_rules(backend, facts(backend, **change))}
    assert rule in broken
    assert broken[rule] == messages()[f"{backend}/{rule}"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_rule_has_a_case_a_reason_and_a_source(backend: Backend) -> None:
    tried = {rule for b, rule, _ in CASES if b == backend} | {rule for rule, _ in COMMON}
    assert tried >= {rule.id for rule in legality(backend).rules}
    assert all(rule.reason and rule.source for rule in legality(backend).rules)
    identifiers = [rule.id for rule in legality(backend).rules]
    assert len(set(identifiers)) == len(identifiers)


@pytest.mark.parametrize("backend", BACKENDS)
def test_rules_read_whole_columns_as_they_read_rows(backend: Backend) -> None:
    changes = [change for b, _, change in CASES if b == backend]
    rows = [facts(backend, **change) for change in changes]
    columns = {key: np.array([row[key] for row in rows]) for key in rows[0]}
    for rule in legality(backend).rules:
        together = np.broadcast_to(np.asarray(rule.require(columns), dtype=bool), (len(rows),))
        assert together.tolist() == [bool(rule.require(row)) for row in rows]


def test_layouts_follow_the_first_entry_that_holds() -> None:
    row = {key: np.array([value]) for key, value in facts("deepspeed").items()}
    codes = layout_codes(
        "deepspeed", {**row, "pipeline_parallel": np.array([1, 1, 4]), "zero_stage": np.array([3, 1, 1])}, 3
    )
    assert codes["even"].tolist() == [True, True, True]
    assert codes["recompute"].tolist() == [2, 2, 0]
    assert codes["offload"].tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "open",
        "tensor_parallel.real",
        "(lambda: 1)()",
        "1 < tensor_parallel < 3",
        "tensor_parallel ** 2",
        "[1][0]",
    ],
)
def test_the_rule_language_runs_nothing(text: str) -> None:
    with pytest.raises(BadLegality):
        Expression(text)({"tensor_parallel": 2})


def test_a_misspelt_word_of_a_choice_is_an_error() -> None:
    with pytest.raises(BadLegality, match="'bf61' is none of bf16"):
        Expression("precision == 'bf61'")({"precision": 0})


@pytest.mark.parametrize(
    ("preset", "rule"),
    [
        ("falcon-40b", "sequential-blocks"),
        ("gpt-neox-20b", "sequential-blocks"),
        ("bloom-7b1", "position-embeddings"),
        ("opt-350m", "plain-embeddings"),
        ("gemma-2-9b", "two-norms"),
        ("llama-2-7b", None),
        ("gpt3-6.7b", None),
        ("qwen3-8b", None),
    ],
)
def test_megatron_runs_only_the_blocks_it_has(preset: str, rule: str | None) -> None:
    job = instance(0).job
    stated = job_facts(type(job)(model=catalog.model(preset), cluster=job.cluster, training=job.training))
    ours = {rule.id for rule in legality("megatron").rules} - {rule.id for rule in legality("ddp").rules}
    names = {"parallel_residual", "position_embedding", "embedding_norm", "embedding_projection", "head_bias"}
    names |= {"norms_per_layer", "norm_affine", "qk_norm", "softcap"}
    changed = {key: value for key, value in stated.items() if key in names}
    broken = [r.id for r, _ in broken_rules("megatron", facts("megatron", **changed)) if r.id in ours]
    assert (rule in broken) if rule else not broken
