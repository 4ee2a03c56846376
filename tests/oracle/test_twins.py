"""Rows that their twin with sequence parallelism outdoes: on every layout it takes less time and no more memory."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np

from cost_models import catalog
from cost_models.job import Job
from cost_models.specs.cluster import ClusterSpec, LinkSpec
from cost_models.specs.model import ModelSpec
from solver.caps import caps
from solver.dominance import Pruning
from solver.groups import grouped
from solver.layout import cost
from solver.problem import Problem
from solver.rows import priced_rows, prices, with_memory
from solver.search import solve
from solver.space import every_topology, rows_of, spaces
from solver.twins import outdone, twin_features
from tests.oracle.instances import instance
from tests.oracle.layouts import layouts
from tests.scale import scaled

LAYOUTS, ROWS = 60, 6
WIDE = {
    "num_hidden_layers": 4, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 32,
    "head_dim": 128, "intermediate_size": 11008, "vocab_size": 32000,
}  # fmt: skip


def wide(seed: int) -> Problem:
    """An instance of wide layers on devices with fast links, where sequence parallelism mostly wins."""
    chosen = instance(seed)
    (pool,) = chosen.job.cluster.pools
    pool = pool.model_copy(
        update={
            "device": catalog.device("h100-sxm-80gb"),
            "nodes": 1,
            "gpus_per_node": 4,
            "intra_node_link": LinkSpec(bandwidth=450e9),
            "link_domain": 4,
        }
    )
    training = chosen.job.training.model_copy(update={"sequence_length": 4096, "global_batch_size": 8})
    job = Job(model=ModelSpec.read(WIDE), cluster=ClusterSpec(pools=(pool,)), training=training)
    backend = ("megatron", "fsdp")[seed % 2]
    choices: dict[str, list[Any]] = {
        "backend": [backend],
        "tensor_parallel": [2, 4],
        "sequence_parallel": [False, True],
        "zero_stage": [0, 1] if backend == "megatron" else [2, 3],
        "precision": ["bf16"],
        "attention": ["flash"],
        "cross_entropy": ["fused"],
        "expert_parallel": [1],
    }
    return replace(chosen, job=job, choices=chosen.choices | choices, gpus=4).problem()


def test_the_optimum_is_the_same_with_rows_that_are_outdone() -> None:
    spared = 0
    for seed in range(7000, 7000 + scaled(6, 100)):
        problem = wide(seed)
        fast, slow = solve(problem), solve(problem, pruning=Pruning(sequence_parallel=False))
        assert (fast.status, fast.configuration) == (slow.status, slow.configuration)
        if fast.configuration is not None:
            assert fast.value == slow.value
        spared += slow.candidates.bounded - fast.candidates.bounded
    assert spared > 0


def test_what_outdoes_a_row_is_better_on_every_layout() -> None:
    compared = kept = 0
    for seed in range(6000, 6000 + scaled(6, 100)):
        problem = wide(seed)
        at = spaces(problem)
        columns = rows_of(at, *every_topology(at))
        if not len(columns[0]):
            continue
        rows = priced_rows(problem, prices(None), at, *columns)
        memory, least = with_memory(problem, prices(None), rows, caps(problem))
        features = [twin_features(space) for space in at]
        beaten = np.nonzero(outdone(problem, rows, memory, features))[0]
        kept += len(rows) - len(beaten)
        groups = list(grouped(problem, rows, memory, caps(problem).max_times(rows.strategy), least))
        place = {group.rows.key(i): (group, i) for group in groups for i in range(len(group))}
        for index in beaten[:: max(1, len(beaten) // ROWS)]:
            turn, space, topology, feature = rows.key(int(index))
            twin = int(features[space][feature])
            ours, theirs = place[turn, space, topology, feature], place[turn, space, topology, twin]
            row, other = ours[0].row(ours[1]), theirs[0].row(theirs[1])
            for layout in itertools.islice(layouts(row), LAYOUTS):
                paid, better = cost(row, layout), cost(other, layout)
                assert better.time < paid.time
                assert better.fits or not paid.fits
                # Peaks are over the instants that can bind, of which both groups keep the largest.
                assert better.memory <= paid.memory
                assert better.host <= paid.host
                compared += 1
    assert compared > 100
    assert kept > 0
