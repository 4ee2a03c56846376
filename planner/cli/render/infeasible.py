"""Why there is no plan, and what would give one."""

from rich.console import Console
from rich.markup import escape

from planner.cli.render.figures import gib, seconds, words
from planner.cli.render.ledgers import titled
from planner.explain import short_name
from planner.plan import Infeasibility, Plan


def infeasible_view(console: Console, plan: Plan) -> None:
    """The conflict, the nearest miss, the changes that were tried."""
    console.print("[bold]infeasible[/bold]  no configuration meets all of this:", soft_wrap=True)
    if plan.infeasibility is None:
        return
    _conflict(console, plan.infeasibility)
    _nearest(console, plan.infeasibility)
    _relaxations(console, plan.infeasibility)
    console.print()


def _conflict(console: Console, found: Infeasibility) -> None:
    for conflict in found.conflict:
        console.print(f"- {escape(conflict.text)}", soft_wrap=True)
        if conflict.phase_shortfall_bytes:
            phases = ", ".join(f"{escape(words(p))} {gib(size)}" for p, size in conflict.phase_shortfall_bytes.items())
            console.print(f"  shortfall by phase, GiB per GPU: {phases}", soft_wrap=True)


def _nearest(console: Console, found: Infeasibility) -> None:
    if found.nearest_miss is None:
        return
    memory = found.nearest_miss.memory
    console.print(f"nearest miss: {escape(short_name(found.nearest_miss.configuration))}", soft_wrap=True)
    console.print(
        f"  needs {gib(memory.conservative_bytes)} GiB per GPU at the asked risk of {gib(memory.usable_bytes)} usable; "
        f"fullest in stage {memory.binding.stage} at {escape(words(memory.binding.instant))}",
        soft_wrap=True,
    )


def _relaxations(console: Console, found: Infeasibility) -> None:
    if not found.relaxations:
        return
    table = titled("Changes tried", "change", "gives a plan", "such as")
    table.columns[2].justify = "left"
    for change in found.relaxations:
        result = change.text or (f"{seconds(change.step_seconds)} a step" if change.step_seconds is not None else "")
        table.add_row(escape(change.change), "yes" if change.verified else "no", escape(result))
    console.print(table)
