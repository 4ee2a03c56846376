"""The committed tree, as the contract tests read it."""

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
FLOORS: Final = ("calibration_data", "cost_models", "solver", "planner", "service", "executor")


@cache
def committed() -> tuple[Path, ...]:
    """Files that git knows or would add, in order; the whole tree where there is no git (an unpacked archive)."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return tuple(path for name in sorted(set(done.stdout.split("\0"))) if name and (path := ROOT / name).is_file())


def sources(*floors: str) -> Iterator[tuple[str, ast.Module]]:
    """Path from the root and syntax tree of every Python file of the floors."""
    for path in committed():
        name = path.relative_to(ROOT)
        if path.suffix == ".py" and name.parts[0] in floors:
            yield name.as_posix(), parsed(path)


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imports(tree: ast.AST) -> Iterator[str]:
    """Top-level names of everything imported, wherever the import stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


def dotted(node: ast.AST) -> str:
    """`a.b.c` of a name or attribute; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""
