"""Stage order, node loads and in-flight memory: the geometry of a layout."""

import numpy as np
import pytest

from cost_models.specs.model import LayerKind, ModelSpec
from solver.layout import node_loads, prefix_counts, stage_order

MODEL = ModelSpec(
    hidden_size=64,
    num_hidden_layers=8,
    num_attention_heads=4,
    num_key_value_heads=4,
    head_dim=16,
    intermediate_size=128,
    vocab_size=100,
    sliding_window=8,
    layers=tuple(LayerKind(attention="full" if i < 3 else "sliding") for i in range(8)),
)


def test_without_chunks_the_order_is_the_models() -> None:
    assert stage_order(MODEL, 4, 1) == (0, 0, 0, 1, 1, 1, 1, 1)


def test_chunks_of_a_stage_are_joined() -> None:
    # Chunks of two layers go round the stages: stage 0 holds layers 0, 1 and 4, 5.
    assert stage_order(MODEL, 2, 2) == (0, 0, 1, 1, 0, 1, 1, 1)


def test_prefix_counts_add_up() -> None:
    counts = prefix_counts(stage_order(MODEL, 2, 2), 2)
    assert counts[-1].tolist() == [3, 5]
    assert (np.diff(counts, axis=0).sum(axis=1) == 1).all()


@pytest.mark.parametrize(
    ("ranks", "stages", "per_node", "expected"),
    [
        (8, 2, 8, [[8, 0], [0, 8]]),
        (16, 2, 8, [[8, 0], [0, 8]]),
        (2, 4, 8, [[2, 2, 2, 2]]),
        (3, 4, 4, [[0, 0, 1, 3], [0, 2, 2, 0], [3, 1, 0, 0]]),
        (1, 3, 8, [[1, 1, 1]]),
    ],
)
def test_ranks_of_a_node(ranks: int, stages: int, per_node: int, expected: list[list[int]]) -> None:
    assert node_loads(ranks, ((stages, per_node),)).tolist() in (expected, expected[::-1])


def test_ranks_of_nodes_in_two_pools() -> None:
    assert node_loads(2, ((2, 4), (1, 8))).tolist() == [[2, 2, 0], [0, 0, 2]]
