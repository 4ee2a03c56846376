"""Write the examples of docs/frontiers.md and docs/pools.md: what the commands print, at a width of 110 columns."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parents[1]
COMMANDS: Final = {
    "frontier": ("docs/frontiers.md", ("frontier", "examples/llama-3-70b.yaml", "--points", "8"), ""),
    "ladder": ("docs/frontiers.md", ("ladder", "examples/llama-3-70b.yaml", "--gpus", "8..64"), ""),
    "pools": ("docs/pools.md", ("plan", "-f", "examples/two-pools.yaml"), "Memory of one GPU"),
}
"""Mark -> document, arguments, and the heading before which the example ends."""


def example(arguments: tuple[str, ...], end: str) -> str:
    """What a command prints, as a block of Markdown."""
    plain = {**os.environ, "COLUMNS": "110", "NO_COLOR": "1", "TERM": "dumb"}
    command = (sys.executable, "-m", "planner.cli", *arguments)
    done = subprocess.run(command, cwd=ROOT, env=plain, capture_output=True, text=True, check=True)
    lines = "\n".join(line.rstrip() for line in done.stdout.splitlines())
    shown, *rest = lines.split(f"\n{end}") if end else [lines]
    text = shown.strip("\n") + ("\n\n[...]" if rest else "")
    return f"```\n$ meshwright {' '.join(arguments)}\n{text}\n```\n"


def main() -> None:
    """Replace what stands between the marks of each example."""
    for mark, (document, arguments, end) in COMMANDS.items():
        target = ROOT / document
        place = re.compile(rf"(<!-- {mark}:begin.*?-->\n).*?(<!-- {mark}:end -->)", re.DOTALL)
        block = example(arguments, end)
        text = place.sub(lambda found, block=block: found[1] + block + found[2], target.read_text(encoding="utf-8"))  # type: ignore[misc]
        target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
