"""Write the example of README.md: the plan that `make demo` prints, as a terminal of 110 columns shows it."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "README.md"
COMMAND = ("plan", "-f", "examples/llama-2-7b.yaml")
PLACE = re.compile(r"(<!-- example:begin.*?-->\n).*?(<!-- example:end -->)", re.DOTALL)


def example() -> str:
    """What the command prints on stdout, as a block of Markdown."""
    plain = {**os.environ, "COLUMNS": "110", "NO_COLOR": "1", "TERM": "dumb"}
    meshwright = Path(sys.executable).with_name("meshwright")
    done = subprocess.run([str(meshwright), *COMMAND], cwd=ROOT, env=plain, capture_output=True, text=True, check=True)
    lines = "\n".join(line.rstrip() for line in done.stdout.strip("\n").splitlines())
    return f"```\n$ meshwright {' '.join(COMMAND)}\n{lines}\n```\n"


def main() -> None:
    """Replace what stands between the two marks."""
    text = TARGET.read_text(encoding="utf-8")
    block = example()
    TARGET.write_text(PLACE.sub(lambda found: found[1] + block + found[2], text), encoding="utf-8")


if __name__ == "__main__":
    main()
