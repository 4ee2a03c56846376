"""Write docs/accuracy.md and its pictures: predictions against the published measurements that are shipped.

Needs the extra `plots` (altair, vl-convert-python). Minutes, most of them for the ablations, which `--quick` keeps
from the page as it stands.
"""

import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import altair
import numpy as np

from cost_models import catalog
from planner.datasets.header import read_directory
from planner.fitting.batches import Batches
from planner.fitting.evidence import HELD_OUT, Sample, held_out, samples
from planner.fitting.fit import Fitted, fitted
from planner.fitting.left_out import LOOSER, LeftOut, sources_left_out, with_looser_priors
from planner.fitting.robust import Problem, solve
from planner.fitting.shipping import folder
from planner.validate import ValidationReport, validate
from planner.validate.comparison import Comparison
from tests.published import test_step_time as paper

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "accuracy.md"
TEMPLATE = ROOT / "docs" / "accuracy.md.in"
APART = {"vtrain single-node", "megatron-ci toy", "torchtune"}
"""Parts that are reported but say little: composed, deterministic toys, labels that contradict physics."""
PEERS = (
    (
        "vtrain multi-node",
        "vTrain, kernels profiled on the machine",
        "14.73 %",
        "Bang et al., MICRO 2024, arXiv:2312.12391",
    ),
    ("vtrain multi-node", "Calculon, uncalibrated", "12.9 %", "Isaev et al., SC 2023, run on the same rows"),
    (
        "vtrain single-node",
        "vTrain, kernels profiled on the machine",
        "8.37 %",
        "Bang et al., MICRO 2024, arXiv:2312.12391",
    ),
    ("Korthikanti et al., tables 3 and 5 (never fitted)", "Calculon", "3.65 %", "Isaev et al., SC 2023, table 2"),
)
ABLATIONS: dict[str, dict[str, float]] = {
    "CPU launch floor": {r"launch_floor_seconds\..*": 1e-9, "softmax_fallback_seconds": 1e-9},
    "element-wise traffic": {r"elementwise_passes\..*": 1e-6},
    "logits and loss traffic": {r"head_bytes_per_logit\..*": 1e-6},
    "bandwidth inside a node": {r"link_efficiency\..*": 1e6, "link_step_seconds": 1e-12},
    "bandwidth between nodes": {r"network_efficiency\..*": 1e6, r"network_step_seconds\..*": 1e-12},
    "overlap of gradients with compute": {r"data_parallel_exposed\..*": 1.0, r"sharded_exposed\..*": 1.0},
    "all attention work of flash kernels": {r"flash_efficiency\..*": 1e6},
}
"""Terms removed by the value that their constants get; all others are fitted again."""


def percent(value: float | None, digits: int = 1) -> str:
    """A fraction as people read it."""
    return "-" if value is None else f"{100 * value:.{digits}f} %"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table, numbers to the right."""
    marks = ["---", *["---:"] * (len(head) - 1)]
    return [f"| {' | '.join(cells)} |" for cells in (head, marks, *rows)] + [""]


def entries(report: ValidationReport, quantity: str) -> list[dict[str, Any]]:
    """Sources, and their parts in place of sources of several kinds."""
    split = {entry["source"] for entry in report.parts() if entry["quantity"] == quantity}
    found = [e for e in report.sources() if e["quantity"] == quantity and e["source"] not in split]
    parts = [{**e, "source": f"{e['source']} {e['part']}"} for e in report.parts() if e["quantity"] == quantity]
    return sorted([*found, *parts], key=lambda entry: str(entry["source"]))


def only(report: ValidationReport, keep: Callable[[Comparison], bool]) -> ValidationReport:
    """The report over some rows."""
    return ValidationReport(tuple(c for c in report.comparisons if keep(c)), report.calibration)


def errors(report: ValidationReport, held: ValidationReport, quantity: str) -> list[str]:
    """Errors of every source, on all rows and on the part that no fit touched."""
    apart = {entry["source"]: entry for entry in entries(held, quantity)}
    rows = []
    for entry in entries(report, quantity):
        other = apart.get(entry["source"], {"used": 0, "mape": None, "median_ape": None})
        figures = [percent(entry[key]) for key in ("median_ape", "mape", "p90_ape", "bias")]
        covered = [percent(entry["coverage"][level], 0) for level in ("80", "90")]
        held_figures = [percent(other["median_ape"]), percent(other["mape"])]
        rows.append(
            [entry["source"], f"{entry['used']}/{entry['rows']}", *figures, *covered, str(other["used"]), *held_figures]
        )
    head = ("source", "used/rows", "median", "mean", "p90", "bias", "in 80 %", "in 90 %", "held out", "median", "mean")
    return table(head, rows)


def coverage(report: ValidationReport, quantity: str) -> str:
    """Coverage over all rows that are not reported apart."""
    rows = [
        c
        for c in report.comparisons
        if c.quantity == quantity and c.used and f"{c.row.source} {c.part}".strip() not in APART and c.intervals
    ]
    shares = []
    for level in ("80", "90"):
        inside = [c.intervals[level][0] <= float(c.measured or 0) <= c.intervals[level][1] for c in rows]
        shares.append(percent(sum(inside) / len(inside) if inside else None))
    return f"{shares[0]} of {len(rows)} rows lie in the 80 % interval and {shares[1]} in the 90 % interval"


def verdicts(report: ValidationReport) -> list[str]:
    """Fits-or-not counts."""
    keys = ("used", "correct", "at_risk", "missed_oom", "false_oom")
    rows = [[e["source"], *(str(e[key]) for key in keys)] for e in entries(report, "verdict") if e["used"]]
    return table(("source", "judged", "right", "at risk", "called fitting, ran out", "called impossible, ran"), rows)


def ranking(report: ValidationReport) -> list[str]:
    """Order of configurations of one job."""
    rows = [
        [e["source"], str(e["groups"]), str(e["configurations"]), f"{e['median_spearman']:.2f}",
         percent(e["mean_regret"]), percent(e["worst_regret"]), percent(e["blind_regret"])]
        for e in report.ranking()
    ]  # fmt: skip
    return table(
        ("source", "jobs", "configurations", "median rho", "regret", "worst regret", "median configuration"), rows
    )


def own_figures(report: ValidationReport) -> list[tuple[str, str, str, int, float, float]]:
    """Tools that print their own prediction beside the measurement: theirs and ours on the same rows."""
    found: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for c in report.comparisons:
        if not c.used or not c.measured or c.predicted is None:
            continue
        token = {"step_time": r"pred_step=([\d.]+)", "peak_memory": r"pred_mem=([\d.]+)"}.get(c.quantity)
        match = re.search(token, c.row.notes) if token else None
        if match is None or c.row.source not in {"simumax", "fitcheck"}:
            continue
        scale = 2**30 if c.quantity == "peak_memory" else 1.0
        theirs = abs(float(match.group(1)) * scale / c.measured - 1)
        found.setdefault((c.row.source, c.part, c.quantity), []).append((theirs, abs(c.predicted / c.measured - 1)))
    return [
        (source, part, quantity, len(v), float(np.mean([a for a, _ in v])), float(np.mean([b for _, b in v])))
        for (source, part, quantity), v in sorted(found.items())
    ]


def korthikanti() -> float:
    """Mean error on the eight iteration times of arXiv:2205.05198, tables 3 and 5."""
    found = [
        abs(paper.predicted(name, recompute) / row[column] - 1)
        for name, row in paper.KORTHIKANTI.items()
        for recompute, column in (("full", -2), ("selective", -1))
    ]
    return float(np.mean(found))


def ablated(result: Fitted, changes: dict[str, float], judged: Batches) -> dict[str, float]:
    """Mean error by source group with a term removed and the other constants fitted again."""
    values = {key: factor.value for key, factor in result.calibration.factors.items()}
    removed = {key: value for pattern, value in changes.items() for key in values if re.fullmatch(pattern, key)}
    values |= removed
    names = tuple(name for name in result.names if name not in removed)
    index = [result.names.index(name) for name in names]

    def linearised(theta: Any) -> Any:
        return result.batches.linearised(values | dict(zip(names, np.exp(theta).tolist(), strict=True)), names)

    problem = Problem(linearised, result.problem.weights, result.problem.centre[index], result.problem.sigma[index])
    theta = solve(problem, result.estimate[index], most=8)
    return group_errors(judged, values | dict(zip(names, np.exp(theta).tolist(), strict=True)))


def group_errors(judged: Batches, values: dict[str, float]) -> dict[str, float]:
    """Mean absolute error by source group, and over all."""
    off = np.abs(np.expm1(judged.residuals(values)))
    groups = sorted({sample.group for sample in judged.samples})
    found = {g: float(np.mean([o for o, s in zip(off, judged.samples, strict=True) if s.group == g])) for g in groups}
    return {"all": float(np.mean(off)), **found}


def ablations(result: Fitted, found: Sequence[Sample]) -> list[str]:
    """What each term buys."""
    shown = (
        "all",
        "vtrain multi-node",
        "llm-foundry",
        "bigscience a100",
        "megatron-bridge dense",
        "simumax dense",
        "fitcheck",
    )
    judged = Batches(
        [s for s in found if s.group not in APART], {k: f.value for k, f in result.calibration.factors.items()}
    )
    values = {key: factor.value for key, factor in result.calibration.factors.items()}
    rows = [("nothing", group_errors(judged, values))]
    for name, changes in ABLATIONS.items():
        print(f"without {name}")
        rows.append((name, ablated(result, changes, judged)))
    return table(("removed", *shown), [[name, *(percent(errors.get(key)) for key in shown)] for name, errors in rows])


def unseen(left_out: Sequence[LeftOut]) -> list[str]:
    """Whole sources left out of the fit."""
    rows = [
        [e.group, str(e.rows), percent(e.median_ape), percent(e.mape), percent(e.bias), percent(e.loose_median_ape)]
        for e in left_out
    ]
    return table(("source left out", "rows", "median", "mean", "bias", f"median, priors {LOOSER:.0f} x as wide"), rows)


def looser(result: Fitted, found: Sequence[Sample]) -> str:
    """What the held-out rows lose when priors say less."""
    tight, loose = with_looser_priors(result, found)
    return (
        f"With priors {LOOSER:.0f} times as wide the held-out rows are predicted to {percent(loose[0])} in the median\n"
        f"and {percent(loose[1])} on average, instead of {percent(tight[0])} and {percent(tight[1])}"
    )


def picture(report: ValidationReport, quantity: str, title: str, unit: str, scale: float, file: Path) -> None:
    """Predicted against measured, logarithmic, with the line of equality and 10 % either side."""
    points = [
        {"measured": c.measured / scale, "predicted": c.predicted / scale, "source": c.row.source,
         "rows": "held out" if held_out(c.row) else "others"}
        for c in report.comparisons
        if c.quantity == quantity and c.used and c.measured and c.predicted
        and f"{c.row.source} {c.part}".strip() not in APART
    ]  # fmt: skip
    low = 10 ** math.floor(math.log10(min(p["measured"] for p in points)))
    high = 10 ** math.ceil(math.log10(max(p["measured"] for p in points)))
    axis = altair.Scale(type="log", domain=[low, high])
    dots = (
        altair.Chart(altair.Data(values=points))
        .mark_point(filled=True, size=22, opacity=0.65)
        .encode(
            x=altair.X("measured:Q", scale=axis, title=f"measured [{unit}]"),
            y=altair.Y("predicted:Q", scale=axis, title=f"predicted [{unit}]"),
            color=altair.Color("source:N", scale=altair.Scale(scheme="tableau20")),
            shape=altair.Shape(
                "rows:N", scale=altair.Scale(domain=["others", "held out"], range=["circle", "diamond"])
            ),
        )
    )
    lines = [
        altair.Chart(altair.Data(values=[{"x": low, "y": low * f}, {"x": high, "y": high * f}]))
        .mark_line(color="grey", strokeWidth=1, strokeDash=[1, 0] if f == 1 else [4, 4], clip=True)
        .encode(x=altair.X("x:Q", scale=axis), y=altair.Y("y:Q", scale=axis))
        for f in (1.0, 0.9, 1.1)
    ]
    chart = altair.layer(*lines, dots).properties(width=420, height=420, title=title)
    chart.save(str(file))


def kept_ablations() -> str:
    """The table of ablations of the page as it stands."""
    text = TARGET.read_text(encoding="utf-8")
    return text[text.index("| removed |") : text.index("## Peak memory")]


def document(*, quick: bool) -> str:
    """The whole page; the pictures are written beside it."""
    report, calibration = validate(), catalog.calibration()
    held = only(report, lambda c: held_out(c.row))
    found = samples(read_directory(folder() / "measurements").measurements)
    pictures = (
        ("step_time", "Step time", "s", 1.0, "accuracy.svg"),
        ("peak_memory", "Peak memory", "GiB", 2.0**30, "accuracy-memory.svg"),
    )
    for quantity, title, unit, scale, file in pictures:
        picture(report, quantity, f"{title} of published runs", unit, scale, ROOT / "docs" / file)
    result = fitted(found, calibration)
    left_out = sources_left_out(result, found)
    ran_out = sum(c.quantity == "verdict" and c.used and c.row.outcome == "oom" for c in report.comparisons)
    mean = korthikanti()
    parts = {
        "calibration": report.calibration,
        "held_share": f"{HELD_OUT:.0%}",
        "time_errors": errors(report, held, "step_time"),
        "korthikanti": percent(mean),
        "time_coverage": coverage(report, "step_time"),
        "held_time_coverage": coverage(held, "step_time"),
        "unseen": unseen(left_out),
        "looser": looser(result, found),
        "ranking": ranking(report),
        "noise": f"{calibration('ranking_noise'):.0%}",
        "noise_source": calibration.factors["ranking_noise"].source,
        "ablations": kept_ablations() if quick else ablations(result, found),
        "memory_errors": errors(report, held, "peak_memory"),
        "memory_coverage": coverage(report, "peak_memory"),
        "held_memory_coverage": coverage(held, "peak_memory"),
        "verdicts": verdicts(report),
        "oom_rows": str(ran_out),
        "oom_bound": percent(1 - 0.05 ** (1 / ran_out), 0) if ran_out else "100 %",
        "peers": peers(report, mean, {e.group: e.mape for e in left_out}),
    }
    text = {name: part if isinstance(part, str) else "\n".join(part) for name, part in parts.items()}
    return TEMPLATE.read_text(encoding="utf-8").format(**text)


def peers(report: ValidationReport, mean: float, left_out: Mapping[str, float]) -> list[str]:
    """Published figures of other tools beside ours, on the same rows; `left_out`: ours without the source, by group."""
    time = {entry["source"]: entry for entry in entries(report, "step_time")}
    rows = [
        [where, percent(time[where]["mape"] if where in time else mean), percent(left_out.get(where)),
         f"{who}: {figure}", citation]
        for where, who, figure, citation in PEERS
    ]  # fmt: skip
    for source, part, quantity, n, theirs, ours in own_figures(report):
        where = f"{source} {part}".strip() + f", {quantity.replace('_', ' ')}, {n} rows"
        citation = "the tool's own prediction, printed beside the measurement"
        without = percent(left_out.get(f"{source} {part}".strip())) if quantity == "step_time" else "-"
        rows.append([where, percent(ours), without, f"{source} itself: {percent(theirs)}", citation])
    return table(("rows", "Meshwright", "source left out", "other", "source"), rows)


if __name__ == "__main__":
    TARGET.write_text(document(quick="--quick" in sys.argv), encoding="utf-8")
