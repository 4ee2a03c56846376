"""The space: topologies times features, per back end, and which pairs are legal.

A topology fixes who computes what (degrees, batch split); a feature set is everything else of a row. Rows are expanded
lazily: the mask says which pairs exist, and only rows that may win are ever priced. Rows keep one fixed order, which is
the last tie-break of the search.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cost_models.arrays import IntArray, ceil_div
from cost_models.specs.choices import BACKENDS, Backend
from cost_models.strategy import Strategy
from solver.domains import CHOICES, DEGREES, FEATURES, Value
from solver.legality import Rule, job_facts, legality
from solver.problem import Problem
from solver.solution import Dropped

Columns = dict[str, IntArray]
Split = Callable[[int], list[tuple[int, int]]]
"""Micro-batch sizes and accumulation steps of a data-parallel degree."""
BoolArray = npt.NDArray[np.bool_]
STRUCTURE: Final = (
    "tensor_parallel",
    "context_parallel",
    "pipeline_parallel",
    "data_parallel",
    "expert_parallel",
    "expert_tensor_parallel",
    "virtual_pipeline_stages",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSpace:
    """The legal rows of one back end."""

    backend: Backend
    topologies: Columns
    features: Columns
    legal: BoolArray
    """(topologies, features)."""
    raw: int
    dropped: tuple[Dropped, ...]

    @property
    def size(self) -> int:
        """Topologies."""
        return int(self.legal.shape[0])

    def rows(self, topology_indices: IntArray) -> tuple[IntArray, IntArray]:
        """Topology and feature index of every legal row of these topologies."""
        local, feature = np.nonzero(self.legal[topology_indices])
        return np.asarray(topology_indices)[local], feature

    def strategy(self, topology: IntArray, feature: IntArray) -> Strategy:
        """The rows as columns."""
        columns = {key: column[topology] for key, column in self.topologies.items()}
        columns |= {key: column[feature] for key, column in self.features.items()}
        return Strategy(backend=np.full(len(topology), BACKENDS.index(self.backend)), **columns)


@cache
def divisors(n: int) -> tuple[int, ...]:
    """All divisors, ascending."""
    low = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return tuple(sorted({*low, *(n // d for d in low)}))


def _grown(columns: Columns, of: IntArray, options: Callable[[int], Any], names: tuple[str, ...]) -> Columns:
    """Every row repeated once per option of its value in `of`; an option is a tuple of new values."""
    lists = {
        value: np.array(list(options(int(value))), dtype=np.int64).reshape(-1, len(names)) for value in np.unique(of)
    }
    counts = np.array([len(lists[value]) for value in of], dtype=np.int64)
    new = np.concatenate([lists[value] for value in of]) if len(of) else np.zeros((0, len(names)), dtype=np.int64)
    grown = {key: np.repeat(column, counts) for key, column in columns.items()}
    return grown | {name: new[:, i] for i, name in enumerate(names)}


def _kept(columns: Columns, mask: BoolArray) -> Columns:
    return {key: column[mask] for key, column in columns.items()}


def _structures(problem: Problem, backend_experts: int) -> Columns:
    """Every factorisation of every offered device count into degrees."""
    domains = problem.resolved_domains

    def factors(key: str) -> Callable[[int], list[tuple[int]]]:
        offered = domains[key]
        return lambda rest: [(d,) for d in divisors(rest) if offered is None or d in offered]

    columns: Columns = {"gpus": np.array(sorted(int(n) for n in domains["gpus"] or ()), dtype=np.int64)}
    rest = columns["gpus"]
    for key in ("tensor_parallel", "context_parallel", "pipeline_parallel"):
        columns = _grown(columns | {"rest": rest}, rest, factors(key), (key,))
        rest = columns.pop("rest") // columns[key]
    if problem.arrangement is not None:
        kept = problem.arrangement.divides(columns["gpus"] // columns["pipeline_parallel"])
        columns, rest = _kept(columns, kept), rest[kept]
    columns["data_parallel"] = rest
    if domains["data_parallel"] is not None:
        columns = _kept(columns, np.isin(rest, np.array(domains["data_parallel"])))
    ranks = columns["data_parallel"] * columns["context_parallel"]
    offered = domains["expert_parallel"]

    def experts(n: int) -> list[tuple[int]]:
        return [(d,) for d in divisors(n) if backend_experts % d == 0 and (offered is None or d in offered)]

    columns = _grown(columns, ranks, experts, ("expert_parallel",))
    expert_tensor = domains["expert_tensor_parallel"]

    def tensor(tp: int) -> list[tuple[int]]:
        choices = sorted({1, tp}) if backend_experts > 1 else [1]
        return [(d,) for d in choices if expert_tensor is None or d in expert_tensor]

    columns = _grown(columns, columns["tensor_parallel"], tensor, ("expert_tensor_parallel",))
    virtual = [
        (int(v),) for v in sorted(domains["virtual_pipeline_stages"] or divisors(problem.job.model.num_hidden_layers))
    ]
    return _grown(
        columns,
        columns["pipeline_parallel"],
        lambda pp: virtual if pp > 1 else virtual[:1],
        ("virtual_pipeline_stages",),
    )


def batch_splits(problem: Problem) -> Split:
    """Micro-batch size and accumulation steps that reach the global batch with a data-parallel degree."""
    batch, domains = problem.job.training.batch_range, problem.resolved_domains
    sizes, steps = domains["micro_batch_size"], domains["gradient_accumulation_steps"]

    @cache
    def split(data_parallel: int) -> list[tuple[int, int]]:
        pairs = [
            (b, q // b)
            for q in range(ceil_div(batch.min, data_parallel), batch.max // data_parallel + 1)
            for b in divisors(q)
            if (sizes is None or b in sizes) and (steps is None or q // b in steps)
        ]
        return sorted(pairs)

    return split


def feature_columns(problem: Problem) -> Columns:
    """The cross product of the feature domains."""
    domains = problem.resolved_domains

    def encoded(key: str) -> list[int]:
        return sorted({CHOICES[key].index(str(v)) if key in CHOICES else int(v) for v in domains[key] or ()})

    rows = list(itertools.product(*(encoded(key) for key in FEATURES)))
    table = np.array(rows, dtype=np.int64).reshape(-1, len(FEATURES))
    return {key: table[:, i] for i, key in enumerate(FEATURES)}


def _wished(problem: Problem, columns: Columns) -> BoolArray:
    """Rows that the user's bounds on degrees leave."""
    size = len(next(iter(columns.values())))
    mask = np.ones(size, dtype=bool)
    for wish in problem.requirements:
        if wish.key in columns and wish.key in (*DEGREES, "gpus"):
            values = columns[wish.key]
            mask &= np.isin(values, [v for v in np.unique(values) if wish.admits(int(v))])
    return mask


class _Counter:
    """Rules in order, each with the candidates that it is the first to drop."""

    def __init__(self, backend: Backend, facts: Mapping[str, Any], rules: tuple[Rule, ...] | None) -> None:
        self.rules = legality(backend).searched if rules is None else rules
        self.backend, self.facts = backend, facts
        self.counts: dict[str, int] = {rule.id: 0 for rule in self.rules}

    def apply(
        self, columns: Mapping[str, Any], names: set[str], done: set[str], weight: Any, alive: BoolArray
    ) -> BoolArray:
        """`alive` after rules that read only `names` and are not done; `weight` candidates stand behind each cell."""
        alive, known = alive.copy(), {**self.facts, **columns}
        readable = names | set(self.facts)
        for rule in self.rules:
            if rule.id in done or not rule.require.names <= readable:
                continue
            done.add(rule.id)
            kept = np.asarray(rule.require(known), dtype=bool)
            if kept.all():
                continue
            broken = alive & ~kept
            each = int(np.count_nonzero(broken)) * weight if np.ndim(weight) == 0 else weight[broken].sum()
            self.counts[rule.id] += int(each)
            alive &= kept
        return alive

    def dropped(self) -> tuple[Dropped, ...]:
        return tuple(
            Dropped(backend=self.backend, rule=r.id, reason=r.reason, source=r.source, candidates=self.counts[r.id])
            for r in self.rules
            if self.counts[r.id]
        )


def backend_space(problem: Problem, backend: Backend, *, rules: tuple[Rule, ...] | None = None) -> BackendSpace:
    """Topologies and features of one back end, with their legal pairs and what each rule drops.

    `rules` replaces those of the back end, for the question which of them stand in the way.
    """
    structures, features = _wished_structures(problem), feature_columns(problem)
    return _space(problem, backend, structures, features, batch_splits(problem), rules)


def _wished_structures(problem: Problem) -> Columns:
    """Structures that the user's bounds on degrees leave, whatever the back end."""
    structures = _structures(problem, 1 if problem.job.model.moe is None else problem.job.model.moe.num_experts)
    return _kept(structures, _wished(problem, structures))


def _space(
    problem: Problem,
    backend: Backend,
    structures: Columns,
    features: Columns,
    split: Split,
    rules: tuple[Rule, ...] | None = None,
) -> BackendSpace:
    counter, done = _Counter(backend, job_facts(problem.job, problem.pools), rules), set[str]()
    width = len(features["zero_stage"])
    batches = np.array([len(split(int(dp))) for dp in structures["data_parallel"]], dtype=np.int64)
    raw = int(batches.sum()) * width
    alive = np.ones(len(batches), dtype=bool)
    structures = _kept(structures, counter.apply(structures, set(STRUCTURE), done, batches * width, alive))
    topologies = _grown(
        structures, structures["data_parallel"], split, ("micro_batch_size", "gradient_accumulation_steps")
    )
    wished = _wished(problem, topologies)
    raw -= int((~wished).sum()) * width
    topologies = _kept(topologies, wished)
    alive = np.ones(len(topologies["gpus"]), dtype=bool)
    topologies = _kept(topologies, counter.apply(topologies, {*STRUCTURE, *DEGREES}, done, width, alive))
    count = len(topologies["gpus"])
    alive = counter.apply(features, set(FEATURES), done, count, np.ones(width, dtype=bool))
    features = {key: column[alive] for key, column in features.items()}
    crossed: dict[str, Any] = {key: column[:, None] for key, column in topologies.items()}
    crossed |= {key: column[None, :] for key, column in features.items()}
    legal = np.ones((count, int(alive.sum())), dtype=bool)
    legal = counter.apply(crossed, {*DEGREES, *FEATURES}, done, 1, legal)
    topologies.pop("gpus")
    some: BoolArray = np.asarray(legal.any(axis=1))
    topologies, legal = _kept(topologies, some), legal[some]
    return BackendSpace(
        backend=backend, topologies=topologies, features=features, legal=legal, raw=raw, dropped=counter.dropped()
    )


def offered(problem: Problem, key: str) -> tuple[Value, ...] | None:
    """What the user's requirements leave of a decision."""
    return problem.resolved_domains[key]


def spaces(problem: Problem) -> tuple[BackendSpace, ...]:
    """One space per back end on offer, in the order of the choices."""
    names = [
        name for name in BACKENDS if name in problem.backends and name in (problem.resolved_domains["backend"] or ())
    ]
    structures, features, split = _wished_structures(problem), feature_columns(problem), batch_splits(problem)
    return tuple(_space(problem, name, structures, features, split) for name in names)


def of_count(at: Sequence[BackendSpace], gpus: int) -> tuple[BackendSpace, ...]:
    """The rows that use so many devices, in their places."""
    degrees = ("tensor_parallel", "context_parallel", "pipeline_parallel", "data_parallel")
    mine = [np.prod([space.topologies[key] for key in degrees], axis=0) == gpus for space in at]
    return tuple(replace(space, legal=space.legal & same[:, None]) for space, same in zip(at, mine, strict=True))


def every_topology(at: Sequence[BackendSpace]) -> tuple[IntArray, IntArray]:
    """Space and index of every topology, in order."""
    sizes = [space.size for space in at]
    return np.repeat(np.arange(len(at)), sizes), np.concatenate(
        [*(np.arange(n) for n in sizes), np.zeros(0, dtype=int)]
    )


def rows_of(at: Sequence[BackendSpace], owner: IntArray, topology: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Space, topology and feature index of every legal row of these topologies, which are in order."""
    parts = [(index, *space.rows(topology[owner == index])) for index, space in enumerate(at)]
    which = np.repeat([index for index, _, _ in parts], [len(rows) for _, rows, _ in parts])
    return which, np.concatenate([rows for _, rows, _ in parts]), np.concatenate([features for _, _, features in parts])


def strategies(at: Sequence[BackendSpace], owner: IntArray, topology: IntArray, feature: IntArray) -> Strategy:
    """Rows of several spaces as columns, in the order given: space by space."""
    return together([space.strategy(topology[owner == i], feature[owner == i]) for i, space in enumerate(at)])


def together(parts: Sequence[Strategy]) -> Strategy:
    """The rows of all parts, one part after the other."""
    return Strategy(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in Strategy.__slots__})
