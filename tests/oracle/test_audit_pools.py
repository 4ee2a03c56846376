"""The audit over several pools against the search: arrangements are the same, right claims stand, wrong ones fall."""

import pytest

from cost_models.specs.cluster import ClusterSpec
from solver.arrangement import arrangements
from solver.audit import pools
from solver.audit.arranged import prove_pools
from solver.search import solve
from tests.oracle.pools import pooled, problem
from tests.scale import scaled


@pytest.mark.parametrize("objective", ["throughput", "cost", "memory"])
@pytest.mark.parametrize("seed", range(scaled(6, 100)))
def test_the_answer_of_the_search_is_proven_and_its_loss_is_seen(seed: int, objective: str) -> None:
    asked = problem(pooled(seed), objectives=(objective,))
    answer = solve(asked)
    proof = prove_pools(asked, answer.configuration)
    assert proof.contradictions == ()
    if answer.configuration is None:
        return
    assert prove_pools(asked, None).contradictions
    assert float(proof.values[0].exact) * proof.values[0].scale == pytest.approx(answer.value)
    less = tuple(value.exact * 101 / 100 for value in proof.values)
    assert prove_pools(asked, answer.configuration, less).contradictions


@pytest.mark.parametrize("nodes", [(1, 2, 1), (3, 5, 1), (30, 40, 20), (300, 400, 200)])
@pytest.mark.parametrize("objective", ["throughput", "memory"])
def test_arrangements_are_those_of_the_search(nodes: tuple[int, ...], objective: str) -> None:
    asked = problem(pooled(5200), objectives=(objective,))
    one = asked.job.cluster.pools[0]
    several = [one.model_copy(update={"nodes": n, "gpus_per_node": 1 + k}) for k, n in enumerate(nodes)]
    cluster = ClusterSpec(pools=tuple(several))
    own = pools._every(cluster.pools, whole=objective == "memory")
    assert own == [found.parts for found in arrangements(cluster, whole=objective == "memory")]
