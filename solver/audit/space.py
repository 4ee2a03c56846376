"""The legal rows of a question, enumerated anew: plain loops over degrees, every rule applied to every row.

Rows come in the order of their key, the last tie-break: by `ORDER`, smallest first.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final

import numpy as np

from cost_models.specs.choices import BACKENDS, Backend
from cost_models.strategy import Strategy
from solver.domains import CHOICES, FEATURES
from solver.legality import job_facts, legality
from solver.problem import Problem

TOPOLOGY: Final = (
    "gpus",
    "tensor_parallel",
    "context_parallel",
    "pipeline_parallel",
    "expert_parallel",
    "expert_tensor_parallel",
    "virtual_pipeline_stages",
    "micro_batch_size",
    "gradient_accumulation_steps",
    "data_parallel",
)
ORDER: Final = (*TOPOLOGY, *FEATURES)
"""Within a back end; back ends keep the order of the choices. Data parallelism follows from the columns before it."""


def backends(problem: Problem) -> tuple[Backend, ...]:
    """Those on offer, in the order of the choices."""
    offered = problem.resolved_domains["backend"] or ()
    return tuple(name for name in BACKENDS if name in problem.backends and name in offered)


def _divisors(number: int) -> list[int]:
    low = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*low, *(number // d for d in low)})


Spaces = Mapping[Backend, Strategy]
"""The legal rows of every back end on offer, in the order of the row key."""


def every_space(problem: Problem) -> Spaces:
    """The legal rows of a question."""
    return {backend: legal_rows(problem, backend) for backend in backends(problem)}


def _topologies(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Degrees that make up an offered number of devices, with the batch splits that they leave."""
    domains, moe, split = problem.resolved_domains, problem.job.model.moe, _splits(problem)
    experts = 1 if moe is None else moe.num_experts
    given = () if problem.arrangement is None else [count for _, count in problem.arrangement.parts]

    def factors(key: str, number: int) -> list[int]:
        offered = domains[key]
        return [d for d in _divisors(number) if offered is None or d in offered]

    virtual = sorted(
        int(v) for v in domains["virtual_pipeline_stages"] or _divisors(problem.job.model.num_hidden_layers)
    )
    for gpus in sorted(int(n) for n in domains["gpus"] or ()):
        for tp in factors("tensor_parallel", gpus):
            for cp in factors("context_parallel", gpus // tp):
                for pp in factors("pipeline_parallel", gpus // tp // cp):
                    if any(count % (gpus // pp) for count in given):
                        continue  # a stage lives wholly in one pool
                    dp = gpus // tp // cp // pp
                    if domains["data_parallel"] is not None and dp not in domains["data_parallel"]:
                        continue
                    splits = split(dp)
                    for ep in factors("expert_parallel", dp * cp) if splits else ():
                        if experts % ep:
                            continue
                        for etp in sorted({1, tp} if experts > 1 else {1}):
                            if etp not in (domains["expert_tensor_parallel"] or (etp,)):
                                continue
                            for v in virtual if pp > 1 else virtual[:1]:
                                yield from ((gpus, tp, cp, pp, ep, etp, v, *split, dp) for split in splits)


def _splits(problem: Problem) -> Callable[[int], list[tuple[int, int]]]:
    """Micro-batch sizes and steps that reach the global batch with a data-parallel degree."""
    batch, domains = problem.job.training.batch_range, problem.resolved_domains
    sizes, steps = domains["micro_batch_size"], domains["gradient_accumulation_steps"]

    @cache
    def split(data_parallel: int) -> list[tuple[int, int]]:
        shares = [total // data_parallel for total in range(batch.min, batch.max + 1) if total % data_parallel == 0]
        pairs = [(size, share // size) for share in shares for size in _divisors(share)]
        return [(b, m) for b, m in pairs if (sizes is None or b in sizes) and (steps is None or m in steps)]

    return split


def _features(problem: Problem) -> list[tuple[int, ...]]:
    domains = problem.resolved_domains

    def codes(key: str) -> list[int]:
        return sorted({CHOICES[key].index(str(v)) if key in CHOICES else int(v) for v in domains[key] or ()})

    return list(itertools.product(*(codes(key) for key in FEATURES)))


def _columns(rows: list[tuple[int, ...]], names: tuple[str, ...]) -> dict[str, Any]:
    table = np.array(rows, dtype=np.int64).reshape(-1, len(names))
    return {name: table[:, i] for i, name in enumerate(names)}


def legal_rows(problem: Problem, backend: Backend) -> Strategy:
    """Every row of a back end that no rule and no wish forbids, in the order of the row key."""
    facts = job_facts(problem.job, problem.pools)
    topology = _columns(sorted(_topologies(problem)), TOPOLOGY)
    for wish in problem.requirements:
        if wish.key in topology:
            admitted = np.array([wish.admits(int(value)) for value in topology[wish.key]], dtype=bool)
            topology = {key: column[admitted] for key, column in topology.items()}
    feature = _columns(_features(problem), FEATURES)
    across: list[Any] = []
    for rule in legality(backend).rules:
        names = rule.require.names - set(facts)
        if names <= set(TOPOLOGY):
            topology = _obeying(rule.require, topology, facts)
        elif names <= set(FEATURES):
            feature = _obeying(rule.require, feature, facts)
        else:
            across.append(rule.require)
    wide = {key: column[:, None] for key, column in topology.items()} | {
        key: column[None, :] for key, column in feature.items()
    }
    legal = np.ones((len(topology["gpus"]), len(feature["zero_stage"])), dtype=bool)
    for require in across:
        legal &= np.asarray(require({**facts, **wide}), dtype=bool)
    at, how = np.nonzero(legal)
    columns = {key: column[at] for key, column in topology.items() if key != "gpus"}
    columns |= {key: column[how] for key, column in feature.items()}
    return Strategy(backend=np.full(len(at), BACKENDS.index(backend)), **columns)


def _obeying(require: Any, columns: dict[str, Any], facts: Any) -> dict[str, Any]:
    size = len(next(iter(columns.values())))
    kept = np.broadcast_to(np.asarray(require({**facts, **columns}), dtype=bool), (size,))
    return {key: column[kept] for key, column in columns.items()}


def one_rank(problem: Problem, backend: int, sequences: int) -> Strategy:
    """One rank with a micro-batch of so many sequences, with every feature on offer."""
    feature = _columns(_features(problem), FEATURES)
    one = np.ones(len(feature["zero_stage"]), dtype=np.int64)
    columns = {name: one for name in TOPOLOGY if name != "gpus"} | {"micro_batch_size": sequences * one} | feature
    return Strategy(backend=backend * one, **columns)
