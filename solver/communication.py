r"""A limit on the share of communication: what of each coefficient of time is communication, and what may be of a step.

The step waits for the communication of its slowest stage, micro-batch by micro-batch, and of its longest tail:

.. math:: m\,c_{\arg\max t} + h_{\arg\max g} + f \le \sigma\,T

Which stage is slowest is read off the grid, where rounding may have changed it: every stage within rounding of the
slowest must keep the limit. Communication is rounded up, and the step may be shorter by what rounding added to it. What
keeps the limit here therefore keeps it by the unrounded formulas.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from solver.problem import PARTS

if TYPE_CHECKING:
    from solver.layout import Layout, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """Ticks of a row that are communication, by the names of its times, and what limits them."""

    layer: tuple[tuple[tuple[int, ...], ...], ...]  # (S, J, R)
    stage: tuple[int, ...]  # (S,)
    tail_layer: tuple[tuple[int, ...], ...]  # (S, J)
    tail_stage: tuple[int, ...]  # (S,)
    fixed: int
    most: int
    """Parts of the step that may be communication, of PARTS."""
    rounding: int
    """Most that rounding added to v times the step."""


def near(layers: int) -> tuple[int, int]:
    """Ticks within which rounding may change which stage is slowest, and whose tail is longest."""
    return layers + 1, 2 * layers + 1


def keeps(row: "Row", layout: "Layout", times: Sequence[int], tails: Sequence[int], time: int) -> bool:
    """Whether a layout with these times keeps the row's limit, if it has one."""
    from solver.layout import counts  # noqa: PLC0415  a row holds its limit

    limit = row.communication
    if limit is None:
        return True
    start, working, ending = 0, [], []
    for s, stage in enumerate(layout):
        a, b, end = start + stage.full, start + stage.full + stage.selective, start + stage.layers
        modes, kinds = (counts(row, b, end), counts(row, a, b), counts(row, start, a)), range(row.kinds)
        working.append(limit.stage[s] + sum(limit.layer[s][j][r] * modes[r][j] for j in kinds for r in range(3)))
        held = counts(row, start, end)
        ending.append(limit.tail_stage[s] + sum(limit.tail_layer[s][j] * held[j] for j in kinds))
        start = end
    close, late = near(row.num_layers)
    most = max(c for c, t in zip(working, times, strict=True) if t >= max(times) - close)
    last = max(c for c, t in zip(ending, tails, strict=True) if t >= max(tails) - late)
    spent = row.virtual * (row.micro_batches * most + last + limit.fixed)
    return spent * PARTS <= limit.most * (time - limit.rounding)
