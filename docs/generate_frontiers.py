"""Write the examples of docs/frontiers.md: what the two commands print, at a width of 110 columns."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs/frontiers.md"
COMMANDS: Final = {
    "frontier": ("examples/llama-3-70b.yaml", "--points", "8"),
    "ladder": ("examples/llama-3-70b.yaml", "--gpus", "8..64"),
}


def example(verb: str) -> str:
    """What a command prints, as a block of Markdown."""
    plain = {**os.environ, "COLUMNS": "110", "NO_COLOR": "1", "TERM": "dumb"}
    command = (sys.executable, "-m", "planner.cli", verb, *COMMANDS[verb])
    done = subprocess.run(command, cwd=ROOT, env=plain, capture_output=True, text=True, check=True)
    lines = "\n".join(line.rstrip() for line in done.stdout.splitlines()).strip("\n")
    return f"```\n$ meshwright {verb} {' '.join(COMMANDS[verb])}\n{lines}\n```\n"


def main() -> None:
    """Replace what stands between the marks of each verb."""
    text = TARGET.read_text(encoding="utf-8")
    for verb in COMMANDS:
        place = re.compile(rf"(<!-- {verb}:begin.*?-->\n).*?(<!-- {verb}:end -->)", re.DOTALL)
        block = example(verb)
        text = place.sub(lambda found, block=block: found[1] + block + found[2], text)  # type: ignore[misc]
    TARGET.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
