"""Write the example of README.md: parts of the plan that `make demo` prints, at a width of 110 columns."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "README.md"
COMMAND = ("plan", "-f", "examples/llama-2-7b.yaml")
PLACE = re.compile(r"(<!-- example:begin.*?-->\n).*?(<!-- example:end -->)", re.DOTALL)
SHOWN = {"Memory of one GPU": 99, "Time of one step": 99, "Proof": 2, "Other ways to split the job": 99}
"""Headings of the parts shown after the summary, with the most lines of each."""


def parts(output: str) -> list[str]:
    """The output cut before every line that starts at the left edge after an empty one."""
    lines = [line.rstrip() for line in output.splitlines()]
    return [part.strip("\n") for part in re.split(r"\n\n+(?=\S)", "\n".join(lines).strip("\n"))]


def example() -> str:
    """The summary and the shown parts, as a block of Markdown.

    Raises:
        ValueError: the command prints no part of a heading that is to be shown.
    """
    plain = {**os.environ, "COLUMNS": "110", "NO_COLOR": "1", "TERM": "dumb"}
    meshwright = Path(sys.executable).with_name("meshwright")
    done = subprocess.run([str(meshwright), *COMMAND], cwd=ROOT, env=plain, capture_output=True, text=True, check=True)
    summary, *rest = parts(done.stdout)
    shown = [summary]
    for heading, most in SHOWN.items():
        found = [part for part in rest if part.startswith(heading)]
        if not found:
            raise ValueError(f"meshwright {' '.join(COMMAND)} prints nothing under {heading!r}")
        shown.append("\n".join(found[0].splitlines()[:most]))
    text = "\n\n".join(shown)
    return f"```\n$ meshwright {' '.join(COMMAND)}\n{text}\n\n[...]\n```\n"


def main() -> None:
    """Replace what stands between the two marks."""
    text = TARGET.read_text(encoding="utf-8")
    block = example()
    TARGET.write_text(PLACE.sub(lambda found: found[1] + block + found[2], text), encoding="utf-8")


if __name__ == "__main__":
    main()
