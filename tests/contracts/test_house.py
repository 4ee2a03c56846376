"""One place per kind of knowledge, files a reader finishes in one sitting, and nothing of the author's machine."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.contracts.tree import FLOORS, ROOT, committed, dotted, imports, sources

MOST_LINES = 400
ROUNDING = {"ceil", "floor", "rint", "round", "around", "trunc", "fix"}


def test_no_file_outgrows_its_reader() -> None:
    long = {
        f"{path.relative_to(ROOT)}: {lines} lines"
        for path in committed()
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] != "tests"
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > MOST_LINES
    }
    assert not long


def _status_codes(tree: ast.Module) -> Iterator[int]:
    """Lines that speak of HTTP failures: exceptions and constants of the framework, a `status_code=` of 400 and up."""
    for node in ast.walk(tree):
        place, _, name = dotted(node).rpartition(".")
        if place == "http.client":  # a caller's view of a broken connection, not an answer
            continue
        if name in {"HTTPException", "HTTPStatus"} or name.startswith("HTTP_"):
            yield node.lineno  # type: ignore[attr-defined]
        if isinstance(node, ast.keyword) and node.arg in {"status_code", "status"}:
            value = node.value
            if isinstance(value, ast.Constant) and isinstance(value.value, int) and value.value >= 400:
                yield value.lineno


def _shell_text(tree: ast.Module) -> Iterator[int]:
    """Lines that start a script or quote for a shell."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("#!"):
            yield node.lineno
        if dotted(node) == "shlex.quote":
            yield node.lineno  # type: ignore[attr-defined]


def _rounding(tree: ast.Module) -> Iterator[int]:
    """Calls that turn a float into a whole number."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and dotted(node.func).split(".")[-1] in ROUNDING:
            yield node.lineno


def _database(tree: ast.Module) -> Iterator[int]:
    """Imports of the database library."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and {"sqlalchemy", "alembic"} & set(imports(node)):
            yield node.lineno


KNOWLEDGE: dict[str, tuple[Callable[[ast.Module], Iterator[int]], tuple[str, ...], tuple[str, ...]]] = {
    # kind: (where it shows, floors searched, its one place)
    "HTTP status codes": (_status_codes, FLOORS, ("service/problems.py", "service/problem_kinds.py")),
    # Frameworks' scripts, and the scripts that hand them to a cluster's queue.
    "shell text": (_shell_text, FLOORS, ("planner/exporters/", "executor/launchers/")),
    # Bounds divide sums of coefficients that are integers already, and may tighten them to the next one. The audit does
    # not trust what it checks and rounds anew.
    "rounding of coefficients": (
        _rounding,
        ("solver",),
        ("solver/rounding.py", "solver/bounds/", "solver/audit/grid.py"),
    ),
    "SQL": (_database, FLOORS, ("service/storage/",)),
}


@pytest.mark.parametrize("kind", sorted(KNOWLEDGE))
def test_each_kind_of_knowledge_has_one_place(kind: str) -> None:
    shows, floors, place = KNOWLEDGE[kind]
    strays = [f"{path}:{line}" for path, tree in sources(*floors) if not path.startswith(place) for line in shows(tree)]
    assert not strays, f"{kind} outside {', '.join(place)}"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("HTTP status codes", "raise HTTPException(404)"),
        ("HTTP status codes", "Response(status_code=503)"),
        ("shell text", "'#!/bin/bash'"),
        ("rounding of coefficients", "np.ceil(x)"),
        ("SQL", "from sqlalchemy import select"),
    ],
)
def test_the_checks_see_what_they_look_for(kind: str, text: str) -> None:
    assert list(KNOWLEDGE[kind][0](ast.parse(text)))


def test_no_command_goes_through_a_shell() -> None:
    through_a_shell = {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"}
    strays = [
        f"{path}:{node.lineno}"
        for path, tree in sources(*FLOORS)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        if dotted(node.func) in through_a_shell or any(keyword.arg == "shell" for keyword in node.keywords)
    ]
    assert not strays


def test_no_committed_file_names_the_authors_machine() -> None:
    own = [re.escape(f"{folder}/") for folder in (ROOT.parent, Path.home()) if len(folder.parts) > 1]
    pattern = re.compile("|".join([*own, r"(?<![\w.:/~])/(?:home|Users|work)/\w"]))
    named = []
    for path in committed():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if path != Path(__file__) and (found := pattern.search(text)):
            named.append(f"{path.relative_to(ROOT)}: {found.group()}")
    assert not named
