"""docs/recalibration.md, from the rows."""

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

import yaml

from benchmarks.recalibration import rows as table
from benchmarks.recalibration.splits import QUANTITIES, SPLITS, Split, coverage, medians, run_of, split
from cost_models import catalog
from planner.fitting.runs import Run

PAGE: Final = Path(__file__).parents[2] / "docs" / "recalibration.md"
TARGETS: Final = {"memory": 0.03, "time": 0.15}
_UNITS: Final = {"memory": (2**20, "MiB", 1), "time": (1.0, "s", 3)}


def write(folder: Path, page: Path = PAGE, splits: int = SPLITS) -> int:
    """Write the page; exits 1 where there is nothing to write about."""
    kept = [row for row in table.read(folder / "rows.jsonl") if row.outcome == "ok" and row.allocated_bytes]
    if len(kept) < 3:
        sys.stderr.write(f"{folder} holds {len(kept)} runs that ended well; a split needs 3\n")
        return 1
    pool: dict[str, Any] = yaml.safe_load((folder / "probe.yaml").read_text(encoding="utf-8"))
    runs = [run_of(row, pool) for row in kept]
    shipped = catalog.calibration()
    found = [split(runs, shipped, seed) for seed in range(splits)]
    page.write_text(text(kept, pool, runs, found), encoding="utf-8")
    for quantity in QUANTITIES:
        errors = [median(medians(found, when, quantity)) for when in ("before", "after")]
        print(f"{quantity}: median error {errors[0]:.1%} before, {errors[1]:.1%} after")
    return 0


def text(kept: Sequence[table.Row], pool: dict[str, Any], runs: Sequence[Run], splits: Sequence[Split]) -> str:
    """The whole page."""
    drawn = len(runs) - len(splits[0].after) // len(QUANTITIES)
    head = f"""# Recalibration on this machine's CPU

Written by `python -m benchmarks.recalibration report` from real runs; `python -m benchmarks.recalibration run`
measures them.

{len(runs)} configurations (back end, ZeRO stage, model, micro-batch, sequence, recompute, precision, accumulation)
were trained by `meshwright-exec` on {pool["gpus_per_node"]} processes of a probed CPU:
{pool["device"]["source"]}.
A random third ({drawn} runs) corrects the shipped constants as a site's measurements do
(`planner.fitting.runs.calibrated`); the other {len(runs) - drawn} are predicted with the shipped and with the
corrected constants. {len(splits)} splits, each with a seed of its own. {_quiet(kept)}

"""
    return head + _errors(splits) + _coverage(splits, len(runs)) + _moved(splits) + _rows(kept, splits)


def _quiet(kept: Sequence[table.Row]) -> str:
    """How far the machine was left alone."""
    spreads = [row.step_spread for row in kept if row.step_spread is not None]
    shares = [row.cpu_seconds / row.step_seconds for row in kept if row.cpu_seconds and row.step_seconds]
    if not spreads or not shares:
        return ""
    return (
        f"In the middle run the middle half of the step times lies within {median(spreads):.0%} of the median, and a "
        f"process had a core for {median(shares):.0%} of a step."
    )


def _errors(splits: Sequence[Split]) -> str:
    lines = [
        "## Errors of what the update had not seen",
        "",
        "Median relative error of a split: the middle split, and the best and the worst.",
        "",
        "| quantity | before | after | target | splits that meet it |",
        "|---|---|---|---|---|",
    ]
    for quantity in QUANTITIES:
        before, after = medians(splits, "before", quantity), medians(splits, "after", quantity)
        met = sum(error <= TARGETS[quantity] for error in after)
        lines.append(
            f"| {quantity} | {_spread(before)} | {_spread(after)} | {TARGETS[quantity]:.0%} | {met} of {len(splits)} |"
        )
    return "\n".join(lines) + "\n\n"


def _spread(errors: Sequence[float]) -> str:
    return f"{median(errors):.2%} ({min(errors):.2%} to {max(errors):.2%})"


def _coverage(splits: Sequence[Split], configurations: int) -> str:
    from scipy.stats import binomtest  # noqa: PLC0415  the page alone needs it

    lines = [
        "## Intervals that are to hold nine times in ten",
        "",
        "Over all splits. One configuration is judged in many splits, so the binomial interval (Clopper and Pearson,",
        "95 %) is that of as many independent trials as there are configurations.",
        "",
        "| quantity | when | held | share | binomial interval |",
        "|---|---|---|---|---|",
    ]
    for quantity in QUANTITIES:
        for when in ("before", "after"):
            held, of = coverage(splits, when, quantity)
            trials = round(held / of * configurations)
            ends = binomtest(trials, configurations).proportion_ci(0.95)
            lines.append(
                f"| {quantity} | {when} | {held} of {of} | {held / of:.1%} | {ends.low:.0%} to {ends.high:.0%} |"
            )
    return "\n".join(lines) + "\n\n"


def _moved(splits: Sequence[Split]) -> str:
    names = sorted({name for split in splits for name in split.moved if not name.startswith("step_time_")})
    counts = ", ".join(f"`{name}` in {sum(name in split.moved for split in splits)}" for name in names) or "none"
    return f"## What moved\n\nConstants that the thirds moved, by number of splits: {counts}.\n\n"


def _rows(kept: Sequence[table.Row], splits: Sequence[Split]) -> str:
    lines = [
        "## Every configuration",
        "",
        "Measured, and the middle prediction over the splits in which it was judged.",
        "",
        "| configuration | memory, MiB | before | after | step, s | before | after |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in kept:
        cells = [row.name]
        for quantity, measured in (("memory", row.allocated_bytes), ("time", row.step_seconds)):
            unit, _, digits = _UNITS[quantity]
            cells.append(f"{(measured or 0) / unit:.{digits}f}")
            for when in ("before", "after"):
                key = (row.name, quantity)
                told = [j.predicted for s in splits for j in getattr(s, when) if (j.name, j.quantity) == key]
                cells.append(f"{median(told) / unit:.{digits}f}" if told else "-")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
