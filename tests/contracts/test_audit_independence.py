"""The audit checks the search by other means: it imports what defines the question and nothing of the search."""

import ast

import pytest

from tests.contracts.tree import ROOT

QUESTION = {
    "solver.caps",
    "solver.domains",
    "solver.legality",
    "solver.objectives",
    "solver.problem",
    "solver.simplicity",
}
"""The question: what is on offer, what is legal, what is limited, what is wanted, what is simple."""
MODEL = {"solver.communication", "solver.inner", "solver.layout"}
"""The search's model of a row, which `models` alone hands to CP-SAT a second time."""

ARRANGED = {"arranged.py", "pools.py"}
"""These hand the question about one arrangement of the pools on, as the problem holds it; they enumerate their own."""


def _imports(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    found = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    found |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return {name for name in found if name.split(".")[0] == "solver" and not name.startswith("solver.audit")}


@pytest.mark.parametrize("path", sorted((ROOT / "solver/audit").glob("*.py")), ids=lambda path: path.name)
def test_the_audit_knows_nothing_of_the_search(path: object) -> None:
    name = str(path)
    allowed = QUESTION | MODEL if name.endswith("models.py") else QUESTION
    if name.rpartition("/")[2] in ARRANGED:
        assert "import Arrangement\n" in (ROOT / name).read_text(encoding="utf-8"), "its type and nothing else"
        allowed = allowed | {"solver.arrangement"}
    assert _imports(name) <= allowed
