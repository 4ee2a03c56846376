"""How well predictions order the configurations of one job: rank correlation and the regret of the predicted best."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any, Final

from planner.measurement import Measurement

FEWEST: Final = 4
"""Configurations that make a group worth ranking."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """One configuration of a group."""

    group: tuple[Any, ...]
    configuration: tuple[Any, ...]
    measured: float
    predicted: float


@dataclass(frozen=True, slots=True)
class Ranking:
    """One (model, cluster, batch) of a source and how its configurations were ordered."""

    group: tuple[Any, ...]
    configurations: int
    spearman: float
    regret: float
    """Measured time of the predicted best over the measured best, less one."""
    blind_regret: float
    """The same of the median configuration: a choice without a prediction."""


def ranking_group(row: Measurement) -> tuple[Any, ...]:
    """What a choice between configurations leaves alone: source, model, framework, cluster, batch, length, type."""
    shape = (row.model, row.layers, row.hidden, row.ffn_hidden)
    job = (row.global_batch_seqs, row.seq_len, row.precision, row.method)
    return (row.source, *shape, row.framework, row.gpu, row.n_gpus, *job)


def configuration_key(row: Measurement) -> tuple[Any, ...]:
    """What tells two configurations of one job apart; repeated runs of one are taken together."""
    degrees = (row.tp, row.pp, row.cp, row.ep, row.dp, row.vpp, row.zero_stage)
    return (*degrees, row.micro_batch, row.recompute, row.flash_attn, row.offload)


def rankings(rows: Iterable[Ranked]) -> list[Ranking]:
    """Every group of at least `FEWEST` configurations, in the order of their names."""
    groups: dict[tuple[Any, ...], dict[tuple[Any, ...], list[Ranked]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        groups[row.group][row.configuration].append(row)
    found = []
    for group, runs in sorted(groups.items(), key=lambda item: str(item[0])):
        members = [
            Ranked(group, key, median(run.measured for run in same), median(run.predicted for run in same))
            for key, same in runs.items()
        ]
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


def summary(source: str, of: Sequence[Ranking]) -> dict[str, Any]:
    """The rankings of one source as plain data."""
    return {
        "source": source,
        "groups": len(of),
        "configurations": sum(ranking.configurations for ranking in of),
        "median_spearman": _shown(median(ranking.spearman for ranking in of)),
        "mean_regret": _shown(mean(ranking.regret for ranking in of)),
        "worst_regret": _shown(max(ranking.regret for ranking in of)),
        "blind_regret": _shown(mean(ranking.blind_regret for ranking in of)),
    }


def _shown(value: float) -> float:
    return float(f"{value:.6g}")
