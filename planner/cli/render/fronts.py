"""Frontiers and ladders as tables."""

from rich.console import Console
from rich.markup import escape

from planner.cli.render.figures import gib, seconds
from planner.cli.render.ledgers import titled
from planner.explain import short_name
from planner.frontier import Frontier, Ladder, Point


def frontier_view(console: Console, found: Frontier) -> None:
    """One line for every point, fastest first."""
    console.print(f"[bold]{escape(found.text)}[/bold]", soft_wrap=True)
    if not found.points:
        console.print("`meshwright plan` says why", soft_wrap=True)
        return
    priced = any(point.cost_per_step is not None for point in found.points)
    table = titled(f"{' against '.join(found.axes)}", *_columns(priced), "configuration")
    table.columns[-1].justify = "left"
    for point in found.points:
        table.add_row(*_cells(point, priced), escape(short_name(point.configuration)))
    console.print(table)
    if any(not point.proven for point in found.points):
        console.print("points without a proof: a limit of the solver was reached", soft_wrap=True)


def ladder_view(console: Console, found: Ladder) -> None:
    """One line for every number of GPUs."""
    priced = any(rung.point is not None and rung.point.cost_per_step is not None for rung in found.rungs)
    table = titled("ladder", *_columns(priced), "configuration, or why there is none")
    table.columns[-1].justify = "left"
    width = len(table.columns) - 2
    for rung in found.rungs:
        if rung.point is None:
            table.add_row(str(rung.gpus), *[""] * width, escape(rung.reason or rung.status))
        else:
            table.add_row(*_cells(rung.point, priced), escape(short_name(rung.point.configuration)))
    console.print(table)


def _columns(priced: bool) -> list[str]:
    return ["GPUs", "step", "tokens/s", "GiB", *(["price of a step"] if priced else []), "proven"]


def _cells(point: Point, priced: bool) -> list[str]:
    cost = [] if not priced else ["" if point.cost_per_step is None else f"{point.cost_per_step:.4g}"]
    return [
        str(point.gpus),
        seconds(point.step_seconds),
        f"{point.tokens_per_second:,.0f}",
        gib(point.conservative_bytes),
        *cost,
        "yes" if point.proven else "no",
    ]
