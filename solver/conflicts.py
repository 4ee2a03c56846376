"""Conflicts: a minimal set of demands that no configuration meets together, in the user's own words.

Found by deletion: start from every demand, drop one at a time, keep it dropped while the rest is still infeasible. What
remains is infeasible, and becomes feasible without any one of its members. `sufficient assumptions` of a solver
are not minimal; this set is.
"""

from dataclasses import dataclass, replace

from cost_models.units import gib
from solver.caps import caps
from solver.feasibility import feasible
from solver.forbidding import Forbidden, forbidding
from solver.limits import figure, moved_limits
from solver.nearest_miss import NearestMiss, nearest_miss, priced
from solver.part import with_parts
from solver.problem import SIDE, Problem
from solver.relaxations import Relaxation
from solver.solution import Dropped
from solver.space import spaces


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """One thing that the request insists on: a resource's size, a limit, a wish about a decision."""

    resource: str
    """gpu_memory, host_memory, the name of a limit, or that of a decision."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a problem has no configuration."""

    conflict: tuple[Demand, ...]
    """Minimal; empty when legality alone forbids everything."""
    nearest_miss: NearestMiss | None
    rules: tuple[Dropped, ...]
    """Legality rules that dropped candidates, most first; decisive when nothing is legal."""
    legal: int
    forbidden: tuple[Forbidden, ...] = ()
    """A minimal set of rules for each back end, where rules alone contradict the wishes."""
    limits: tuple[Relaxation, ...] = ()
    """Each limit of the conflict at the least figure that works."""


def demands(problem: Problem) -> tuple[Demand, ...]:
    """Everything that could be dropped, the user's wishes first: what they can change soonest is kept to the end."""
    pools, limits = problem.job.cluster.pools, problem.limits
    wishes = dict.fromkeys(requirement.text for requirement in problem.requirements)
    out = [Demand(resource=text.split(":")[0], text=text) for text in wishes]
    for name in SIDE:
        stated = getattr(limits, name)
        if stated is not None:
            out.append(Demand(resource=name, text=f"{name}: {figure(name, stated)}"))
    usable = (f"{gib(pool.device.usable_memory_bytes)} of usable memory on each {pool.device.name}" for pool in pools)
    hosts = [f"{gib(pool.host_memory_bytes)} of host memory in each node" for pool in pools]
    if len(pools) > 1:
        hosts = [f"{text} of {pool.device.name}" for text, pool in zip(hosts, pools, strict=True)]
    out.append(Demand(resource="gpu_memory", text=" and ".join(dict.fromkeys(usable))))
    out.append(Demand(resource="host_memory", text=" and ".join(dict.fromkeys(hosts))))
    return tuple(out)


def _only(problem: Problem, kept: tuple[Demand, ...]) -> bool:
    """Whether some configuration meets these demands, the others set aside."""
    texts, resources = {d.text for d in kept}, {d.resource for d in kept}
    limits = replace(problem.limits, **{name: None for name in SIDE if name not in resources})
    asked = replace(problem, limits=limits, requirements=tuple(r for r in problem.requirements if r.text in texts))
    limit = replace(caps(asked), device_memory="gpu_memory" in resources, host_memory="host_memory" in resources)
    return bool(feasible(asked, limit))


def minimal_conflict(problem: Problem) -> tuple[Demand, ...]:
    """Demands infeasible together, feasible without any one of them; empty if dropping all does not help."""
    kept = demands(problem)
    if not _only(problem, ()):
        return ()
    for demand in kept:
        rest = tuple(d for d in kept if d != demand)
        if not _only(problem, rest):
            kept = rest
    return kept


def explain(problem: Problem) -> Explanation:
    """Why an infeasible problem is infeasible: the conflict, what comes closest, the rules that stand in the way."""
    at = spaces(with_parts(problem))
    legal = sum(int(space.legal.sum()) for space in at)
    rules = sorted((d for space in at for d in space.dropped), key=lambda d: (-d.candidates, d.backend, d.rule))
    conflict = minimal_conflict(problem)
    resources = {demand.resource for demand in conflict}
    alone = len(problem.job.cluster.pools) == 1
    limits = tuple(moved_limits(problem, [demand.resource for demand in conflict])) if alone else ()
    return Explanation(
        conflict=conflict,
        nearest_miss=_nearest(problem, resources, limits) if legal and alone else None,
        limits=limits,
        rules=tuple(rules),
        legal=legal,
        forbidden=_forbidden(problem, conflict),
    )


def _nearest(problem: Problem, resources: set[str], limits: tuple[Relaxation, ...]) -> NearestMiss | None:
    """What comes closest: of memory where that is in conflict, else what needs the least change of a limit."""
    reached = [change for change in limits if change.configuration is not None]
    if reached and not {"gpu_memory", "host_memory"} & resources:
        best = min(reached, key=lambda change: _stretch(problem, change))
        assert best.configuration is not None
        return priced(problem, best.configuration)
    return nearest_miss(problem, host_memory=bool({"host_memory", "max_host_memory_bytes"} & resources))


def _stretch(problem: Problem, change: Relaxation) -> float:
    """How many times a limit grows or shrinks."""
    stated, value = float(getattr(problem.limits, change.lever)), float(change.value or 0)
    return max(value / stated, stated / value) if value and stated else float("inf")


def _forbidden(problem: Problem, conflict: tuple[Demand, ...]) -> tuple[Forbidden, ...]:
    """The rules that the wishes of a conflict break; none where a resource or a limit has a part in it."""
    wishes = tuple(r for r in problem.requirements if r.text in {demand.text for demand in conflict})
    if {demand.text for demand in conflict} != {wish.text for wish in wishes}:
        return ()
    return forbidding(replace(problem, requirements=wishes))
