"""A live panel of a run: predicted beside measured, headroom, communication share, samples per second, hints."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cost_models.errors import MeshwrightError
from cost_models.units import GIB
from executor.hints import Hint, hints
from executor.measured import RankReport
from executor.report import fullest, read_ranks

if TYPE_CHECKING:
    from executor.run import PreparedRun
    from planner.plan import Plan

REFRESHES_PER_SECOND = 1.0
"""As often as processes tell what they do."""


class Panel:
    """Shown below the output of the training, which it takes line by line."""

    def __init__(
        self, plan: "Plan", reports: Path, console: Console, hints: Callable[[Sequence[RankReport]], Sequence[Hint]]
    ) -> None:
        """Show what the processes leave in `reports`."""
        self._plan, self._reports, self._console, self._hints = plan, reports, console, hints
        self._live = Live(console=console, get_renderable=self._now, refresh_per_second=REFRESHES_PER_SECOND)

    def __enter__(self) -> Self:
        """Start to show."""
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the last state on the screen."""
        self._live.__exit__(kind, error, trace)

    def write(self, line: str) -> int:
        """A line of the training's output goes above the panel."""
        self._console.print(Text(line.rstrip("\n")), soft_wrap=True)
        return len(line)

    def flush(self) -> None:
        """The console writes at once."""

    def _now(self) -> Group | Text:
        try:
            ranks = read_ranks(self._reports)
        except MeshwrightError:  # a file of something else; the report will say so
            ranks = ()
        return view(self._plan, ranks, self._hints(ranks)) if ranks else Text("no process has told anything yet")


@contextmanager
def panelled(prepared: "PreparedRun", *, shown: bool) -> Iterator[Any]:
    """The panel of a run as the place for its output; None where none is shown."""
    if not shown:
        yield None
        return
    plan = prepared.plan

    def told(ranks: Sequence[RankReport]) -> Sequence[Hint]:
        return hints(plan, ranks, prepared.limits)

    with Panel(plan, prepared.launch.reports, Console(stderr=True), told) as panel:
        yield panel


def view(plan: "Plan", ranks: Sequence[RankReport], hints: Sequence[Hint]) -> Group:
    """The panel."""
    assert plan.prediction is not None
    assert plan.configuration is not None
    time, memory = plan.prediction.time, plan.prediction.memory
    recent = max((rank.recent_seconds for rank in ranks if rank.recent_seconds), default=None)
    resident = max((peak.bytes for peak in fullest([rank.resident for rank in ranks]).values()), default=None)
    busy = min((rank.utilisation for rank in ranks if rank.utilisation is not None), default=None)
    host = sum(rank.host.bytes for rank in ranks if rank.host) or None
    share = max((rank.split.communication_share for rank in ranks if rank.split), default=None)
    rate = None if recent is None else plan.configuration.global_batch_size / recent
    table = Table(title=Text(f"plan {plan.envelope.id}: step {min(r.steps_done for r in ranks)}"), title_justify="left")
    for heading in ("", "predicted", "measured"):
        table.add_column(heading, justify="right" if heading else "left")
    table.add_row("step", f"{time.step_seconds:.3f} s", _shown(recent, "{:.3f} s"))
    table.add_row("samples/s", f"{time.samples_per_second:.2f}", _shown(rate, "{:.2f}"))
    table.add_row("communication", f"{time.communication_fraction:.1%}", _shown(share, "{:.1%}"))
    table.add_row("memory", _gib(memory.reserved.median_bytes), _gib(resident))
    table.add_row(
        "headroom", _gib(memory.usable_bytes - memory.reserved.median_bytes),
        _gib(None if resident is None else memory.usable_bytes - resident),
    )  # fmt: skip
    table.add_row("host RAM", _gib(memory.host_bytes), _gib(host))
    table.add_row("utilisation", "", _shown(busy, "{:.0%}"))
    table.add_row("loss", "", _loss(ranks))
    return Group(table, *(Text(f"hint: {hint.text}") for hint in hints))


def _loss(ranks: Sequence[RankReport]) -> str:
    """The last, or where it stopped to be a number in any process."""
    lost = min((step for rank in ranks for step, loss in rank.losses_by_step if loss is None), default=None)
    last = ranks[0].losses[-1] if ranks[0].losses else None
    return _shown(last, "{:.4f}") if lost is None else f"no number from step {lost}"


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _gib(size: int | None) -> str:
    return "-" if size is None else f"{size / GIB:.3f} GiB"
