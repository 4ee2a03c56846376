"""What is listed beside a plan is the best of its structure: of all its configurations, and of what a user pins."""

from dataclasses import replace

from solver.alternatives import TELLING
from solver.rivals import rivals
from solver.search import solve
from tests.oracle.grid import best, where
from tests.oracle.varied import Varied, varied
from tests.scale import scaled


def test_a_rival_is_the_best_of_its_structure() -> None:
    compared = 0
    for seed in range(130_000, 130_000 + scaled(18, 300)):
        case = varied(seed)
        problem = case.problem(alternatives=5)
        solution = solve(problem)
        found = rivals(problem, solution) if solution.configuration is not None else ()
        assert [rival.value for rival in found] == sorted(rival.value for rival in found)
        for rival in found:
            chosen = rival.configuration
            structure = {name: [getattr(chosen, name)] for name in set(TELLING) & set(case.choices) - {"backend"}}
            narrow: Varied = replace(
                case,
                choices=case.choices | structure | {"backend": [chosen.backend.name]},
                counts=(chosen.world_size,),
            )
            alone = narrow.problem()
            alone = replace(alone, domains=alone.domains.with_values(data_parallel=(chosen.data_parallel,)))
            claimed = best(alone)
            assert claimed is not None
            assert where(alone, chosen) == (claimed[0].place, claimed[0].plainness), f"seed {seed}"
            compared += 1
    assert compared >= 1
