"""Write docs/formulas.md from the docstrings of `cost_models`: one entry a formula, in the order of the source.

A formula is a public function whose docstring states a unit in brackets, an equation or a source.
`--check` writes nothing and exits 1 when the committed file is out of date.
"""

import argparse
import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "formulas.md"
COMMAND = "make docs"
IS_FORMULA = re.compile(r"\[[a-zA-Z/0-9 ]+\]|^Source:|\.\. math::", re.MULTILINE)
MATH_BLOCK = re.compile(r"^\.\. math::[ ]*(?P<first>[^\n]*)\n?(?P<rest>(?:[ \t]*\n|[ ]+[^\n]*(?:\n|$))*)", re.MULTILINE)
SECTION = re.compile(r"^(Args|Returns|Raises|Yields|Example|Examples|Note|Assumes|Source|Sources):[ ]*", re.MULTILINE)


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Public functions of a module, and public methods of its public classes, as `name` or `Class.name`."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield node.name, node
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
                    yield f"{node.name}.{method.name}", method


def rendered(docstring: str) -> str:
    """A docstring as Markdown: display equations fenced, inline ones between dollars, section names in bold."""

    def fenced(found: re.Match[str]) -> str:
        lines = [found["first"], *inspect.cleandoc("\n" + found["rest"]).splitlines()]
        return "```math\n" + "\n".join(line for line in lines if line.strip()) + "\n```\n\n"

    text = MATH_BLOCK.sub(fenced, inspect.cleandoc(docstring))
    text = re.sub(r":math:`([^`]*)`", r"$\1$", text)
    text = SECTION.sub(lambda found: f"\n**{found[1]}:** ", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def module_entries(path: Path) -> list[str]:
    """The entries of one module, its own docstring first; nothing for a module without formulas."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    entries = [
        f"### `{name}({', '.join(argument.arg for argument in (*node.args.args, *node.args.kwonlyargs))})`\n\n"
        f"{rendered(docstring)}\n"
        for name, node in functions(tree)
        if (docstring := ast.get_docstring(node, clean=False)) and IS_FORMULA.search(inspect.cleandoc(docstring))
    ]
    if not entries:
        return []
    source = path.relative_to(ROOT).as_posix()
    about = ast.get_docstring(tree, clean=False) or ""
    return [f"## [{source}](../{source})\n\n{rendered(about)}\n", *entries]


def document() -> str:
    """The whole document."""
    head = (
        "# Formulas\n\n"
        f"Written by `{COMMAND}` from the docstrings of `cost_models`; edit those, not this file.\n"
        "Units stand in brackets. GB is 10⁹ bytes and GiB is 2³⁰.\n"
    )
    modules = sorted((ROOT / "cost_models").rglob("*.py"))
    return "\n".join([head, *(entry for path in modules for entry in module_entries(path))])


def main() -> int:
    """Write or check the document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="only say whether the committed file is current")
    text = document()
    if not parser.parse_args().check:
        TARGET.write_text(text, encoding="utf-8")
    elif not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text:
        print(f"{TARGET.relative_to(ROOT)} is out of date: run `{COMMAND}`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
