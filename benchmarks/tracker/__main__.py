"""Track training steps: `python -m benchmarks.tracker --model gemma-2-2b --recompute full --out rows.csv`.

`--cases FILE.yaml` runs every model of the file in every variant of the file: both are lists of fields of `Case`.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml

from benchmarks.tracker.case import OPTIMIZERS, PRECISIONS, Case


def cases(arguments: argparse.Namespace) -> list[Case]:
    """The cases asked for. A model's `only` or `without` names the variants that it takes or leaves."""
    if arguments.cases:
        return listed(yaml.safe_load(arguments.cases.read_text(encoding="utf-8")))
    names = ("model", "precision", "micro_batch", "sequence", "recompute", "attention", "optimizer", "sharding", "lora",
             "rank", "four_bit", "padded", "chunks")  # fmt: skip
    overrides = {key: yaml.safe_load(value) for key, value in (each.split("=", 1) for each in arguments.set)}
    return [Case(**{name: getattr(arguments, name) for name in names}, overrides=overrides)]


def listed(file: dict[str, Any]) -> list[Case]:
    """The cases of a file."""
    found = []
    for model in file["models"]:
        only, without = model.pop("only", file["variants"]), model.pop("without", ())
        found += [
            Case(**{**fields, **model})
            for name, fields in file["variants"].items()
            if name in only and name not in without
        ]
    return found


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    found = argparse.ArgumentParser(prog="python -m benchmarks.tracker", description=__doc__)
    found.add_argument("--model", help="preset, config.json or family:MODEL_TYPE")
    found.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="replace a key of config.json")
    found.add_argument("--precision", choices=PRECISIONS, default="bf16-pure")
    found.add_argument("--micro-batch", type=int, default=1)
    found.add_argument("--sequence", type=int, default=512)
    found.add_argument("--recompute", choices=("none", "full"), default="none")
    found.add_argument("--attention", choices=("sdpa", "eager"), default="sdpa")
    found.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw-fused")
    found.add_argument("--sharding", default="1", help="1, fsdp2:N or fsdp2:N:no_reshard")
    found.add_argument("--lora", default="", help="target modules joined by +, or all-linear")
    found.add_argument("--rank", type=int, default=16)
    found.add_argument("--four-bit", action="store_true")
    found.add_argument("--padded", action="store_true")
    found.add_argument("--chunks", type=int, default=1, help="chunks of the head and the loss")
    found.add_argument("--cases", type=Path, help="YAML list of cases instead")
    found.add_argument("--out", type=Path, help="CSV to append to; standard output without")
    found.add_argument("--trace", action="store_true", help="print every operator and the bytes alive after it")
    return found


def main() -> int:
    """Track; exits 1 when a case failed."""
    arguments = parser().parse_args()
    from benchmarks.tracker.measure import measure  # noqa: PLC0415  imports torch
    from benchmarks.tracker.rows import row, write  # noqa: PLC0415

    failed = 0
    for case in cases(arguments):
        try:
            measured = measure(case, events=arguments.trace)
            found: dict[str, Any] = row(case, measured)
        except Exception as error:
            failed += 1
            print(f"{case.name}: {type(error).__name__}: {error}", file=sys.stderr)
            if not arguments.cases:
                raise
            continue
        for name, alive in measured.events:
            print(f"{alive:16d} {name}")
        if arguments.out:
            write(arguments.out, [found])
        print(f"{case.name} {case.precision} {case.micro_batch}x{case.sequence} {case.recompute}: "
              f"{found['peak_total_gb']} GiB in {found['run_s']} s", file=sys.stderr)  # fmt: skip
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
