"""Documents point at what is there, and the generated ones are current."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contracts.tree import ROOT, committed

DOCUMENTS = [path for path in committed() if path.suffix == ".md"]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """Anchors of a document's headings, as the usual renderers make them."""
    titles = re.findall(r"^#+ (.+)$", FENCE.sub("", text), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_resolve(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    broken = []
    for target in (first or second for first, second in LINK.findall(FENCE.sub("", text))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (document.parent / name).resolve() if name else document
        lost = (
            anchor
            and file.suffix == ".md"
            and file.exists()
            and anchor not in anchors(file.read_text(encoding="utf-8"))
        )
        if not file.exists() or lost:
            broken.append(target)
    assert not broken


@pytest.mark.parametrize("script", ["generate_formulas.py", "generate_requests.py"])
def test_the_generated_reference_is_current(script: str) -> None:
    command = [sys.executable, f"docs/{script}", "--check"]
    path = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = sorted(int(path.name[:4]) for path in (ROOT / "docs" / "adr").glob("[0-9][0-9][0-9][0-9]-*.md"))
    assert numbers == list(range(1, len(numbers) + 1))
