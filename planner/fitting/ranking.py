"""How well predictions order the configurations of one job: rank correlation, regret, and the gap they can tell."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import Any, Final

from planner.fitting.residuals import Missed

FEWEST: Final = 4
"""Configurations that make a group worth ranking."""


@dataclass(frozen=True)
class Ranked:
    """One configuration of a group."""

    group: tuple[Any, ...]
    measured: float
    predicted: float


@dataclass(frozen=True)
class Ranking:
    """One (model, cluster, batch) of a source and how its configurations were ordered."""

    group: tuple[Any, ...]
    configurations: int
    spearman: float
    regret: float
    """Measured time of the predicted best over the measured best, less one."""
    median_regret: float
    """The same of a configuration taken blindly: the median one."""


def rankings(rows: Iterable[Ranked]) -> list[Ranking]:
    """Every group of at least `FEWEST` configurations, in the order of their names."""
    groups: dict[tuple[Any, ...], list[Ranked]] = defaultdict(list)
    for row in rows:
        groups[row.group].append(row)
    found = []
    for group, members in sorted(groups.items(), key=lambda item: str(item[0])):
        if len(members) < FEWEST:
            continue
        best = min(member.measured for member in members)
        pick = min(members, key=lambda member: member.predicted)
        rho = spearman([m.measured for m in members], [m.predicted for m in members])
        blind = median(m.measured for m in members) / best - 1
        found.append(Ranking(group, len(members), rho, pick.measured / best - 1, blind))
    return found


def ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share their mean rank."""
    order = sorted(values)
    return [(order.index(v) + len(order) - order[::-1].index(v) + 1) / 2 for v in values]


def spearman(left: Sequence[float], right: Sequence[float]) -> float:
    """Spearman's rank correlation; 0 where one side has no order at all."""
    a, b = ranks(left), ranks(right)
    middle = (len(a) + 1) / 2
    covariance = sum((x - middle) * (y - middle) for x, y in zip(a, b, strict=True))
    spread = sum((x - middle) ** 2 for x in a) * sum((y - middle) ** 2 for y in b)
    return covariance / float(spread**0.5) if spread > 0 else 0.0


def ranking_noise(misses: Iterable[Missed]) -> tuple[float, int]:
    """The predicted log gap that errors of two configurations of one group typically undo, and the pairs behind it."""
    groups: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for missed in misses:
        groups[group_key(missed)].append(missed.error)
    per_group, pairs = [], 0
    for errors in groups.values():
        if len(errors) >= FEWEST:
            gaps = [abs(a - b) for a, b in combinations(errors, 2)]
            pairs += len(gaps)
            per_group.append(median(gaps))
    return (median(per_group) if per_group else 0.0), pairs


def group_key(missed: Missed) -> tuple[Any, ...]:
    """Source, model, device, number of devices, batch and length: what a choice between configurations leaves alone."""
    case = missed.sample.case
    return (
        missed.sample.row.source,
        missed.sample.shape,
        case.job.device.name,
        case.configuration.world_size,
        case.configuration.global_batch_size,
        case.job.training.sequence_length,
    )
