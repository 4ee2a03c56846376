"""The two ledgers as tables."""

from collections.abc import Iterator

from rich import box
from rich.markup import escape
from rich.table import Table

from planner.cli.render.figures import gib, percent, seconds, words
from planner.plan import MemoryPrediction, StagePrediction, TimePrediction


def titled(title: str, *columns: str, header: bool = True) -> Table:
    """A plain table under its title; figures to the right, the first column to the left."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, show_header=header)
    for index, name in enumerate(columns):
        table.add_column(name, justify="right" if index else "left")
    # A title is wrapped to the table's width: keep the table as wide as its title.
    table.min_width = len(title)
    return table


MOST_STAGES = 8
"""Columns of a stage table; a deeper pipeline shows its first, its fullest and its last stages."""


def memory_tables(memory: MemoryPrediction) -> Iterator[Table]:
    """Terms at each stage's fullest instant, then every instant of every stage."""
    stages = shown_stages(memory)
    many = len(stages) < len(memory.per_stage)
    note = f" (stages {', '.join(str(s.stage) for s in stages)} of {len(memory.per_stage)})" if many else ""
    columns = [f"stage {stage.stage}\n{escape(words(stage.instant))}" for stage in stages]
    terms = titled(f"Memory of one GPU at each stage's fullest instant, GiB{note}", "term", *columns)
    names = dict.fromkeys(name for stage in stages for name in stage.instants_bytes[stage.instant])
    for name in names:
        sizes = [stage.instants_bytes[stage.instant].get(name, 0) for stage in stages]
        if any(sizes):
            terms.add_row(escape(words(name)), *(gib(size) for size in sizes))
    terms.add_section()
    terms.add_row("allocated", *(gib(stage.allocated_bytes) for stage in stages))
    yield terms
    columns = [f"stage {stage.stage}" for stage in stages]
    instants = titled("Allocated at every instant, GiB (* fullest)", "instant", *columns)
    for name in dict.fromkeys(instant for stage in stages for instant in stage.instants_bytes):
        cells = []
        for stage in stages:
            total = sum(stage.instants_bytes.get(name, {}).values())
            cells.append(gib(total) + ("*" if name == stage.instant else " "))
        instants.add_row(escape(words(name)), *cells)
    yield instants


def shown_stages(memory: MemoryPrediction) -> tuple[StagePrediction, ...]:
    """All stages, or of a deep pipeline the first ones, the fullest and the last."""
    stages = memory.per_stage
    if len(stages) <= MOST_STAGES:
        return stages
    keep = {*range(MOST_STAGES - 2), memory.binding.stage, len(stages) - 1}
    return tuple(stages[index] for index in sorted(keep))


def device_table(memory: MemoryPrediction) -> Table:
    """From what is allocated to what the device holds, with intervals."""
    table = titled("Memory of the fullest GPU, GiB", "", "median", "lower", "upper")
    rows = (
        ("allocated", memory.allocated),
        ("reserved by the allocator", memory.reserved),
        ("device: with context and communicators", memory.device),
    )
    for label, quantity in rows:
        table.add_row(label, gib(quantity.median_bytes), gib(quantity.lower_bytes), gib(quantity.upper_bytes))
    table.add_section()
    table.add_row("usable", gib(memory.usable_bytes), "", "")
    table.add_row("host, fullest node", gib(memory.host_bytes), "", "")
    table.add_row("host, usable", gib(memory.host_usable_bytes), "", "")
    return table


def time_table(time: TimePrediction) -> Table:
    """Exposed and hidden seconds by term, largest first."""
    table = titled("Time of one step", "term", "exposed", "share", "hidden")
    names = dict.fromkeys((*time.breakdown_seconds, *time.hidden_seconds))
    for name in sorted(names, key=lambda n: -time.breakdown_seconds.get(n, 0.0)):
        exposed, hidden = time.breakdown_seconds.get(name, 0.0), time.hidden_seconds.get(name, 0.0)
        if exposed or hidden:
            share = percent(exposed / time.step_seconds)
            table.add_row(escape(words(name)), seconds(exposed), share, seconds(hidden) if hidden else "")
    table.add_section()
    table.add_row("step", seconds(time.step_seconds), percent(1.0), "")
    return table
