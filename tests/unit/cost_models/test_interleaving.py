"""Interleaved pipelines whose chunks differ, against a simulation of the schedule, operation by operation."""

from functools import cache

import pytest

from cost_models.schedule import chunk_sizes, held_layers, in_flight, spread, stage_in_flight, step_seconds

Order = list[tuple[str, int, int]]
"""Forward or backward, chunk, micro-batch."""


def order(stage: int, stages: int, virtual: int, micro_batches: int) -> Order:
    """What a stage runs: warm-up, then a forward and a backward in turn, then what is left of backward."""
    total = virtual * micro_batches
    forward = [
        ("F", k % (stages * virtual) // stages, k // (stages * virtual) * stages + k % stages) for k in range(total)
    ]
    backward = [("B", virtual - 1 - chunk, micro) for _, chunk, micro in forward]
    warm = min(2 * (stages - stage - 1) + (virtual - 1) * stages, total)
    steady = [op for pair in zip(forward[warm:], backward, strict=False) for op in pair]
    return forward[:warm] + steady + backward[total - warm :]


@cache
def simulated(
    layers: tuple[int, ...], virtual: int, micro_batches: int, ends: tuple[int, int]
) -> tuple[int, list[int]]:
    """Time of a step (a layer takes 1 forward and 2 backward, `ends` the same more), and most layers held by stage."""
    stages, sizes = len(layers), chunk_sizes(layers, virtual)

    def work(stage: int, chunk: int) -> int:
        embeds, loses = stage == chunk == 0, (stage, chunk) == (stages - 1, virtual - 1)
        return sizes[stage][chunk] + ends[0] * embeds + ends[1] * loses

    todo = [order(s, stages, virtual, micro_batches) for s in range(stages)]
    done: dict[tuple[str, int, int, int], int] = {}
    free, at, held, most = [0] * stages, [0] * stages, [0] * stages, [0] * stages
    while any(at[s] < len(todo[s]) for s in range(stages)):
        for s in range(stages):
            while at[s] < len(todo[s]):
                kind, chunk, micro = todo[s][at[s]]
                place = chunk * stages + s
                before = place - 1 if kind == "F" else place + 1
                needed = (
                    [] if not 0 <= before < stages * virtual else [(kind, before % stages, before // stages, micro)]
                )
                needed += [("F", s, chunk, micro)] if kind == "B" else []
                if not all(key in done for key in needed):
                    break
                free[s] = max([free[s], *(done[key] for key in needed)]) + work(s, chunk) * (1 if kind == "F" else 2)
                done[kind, s, chunk, micro] = free[s]
                held[s] += sizes[s][chunk] if kind == "F" else -sizes[s][chunk]
                most[s], at[s] = max(most[s], held[s]), at[s] + 1
    return max(free), most


LAID_OUT = [
    (126, 8, 4),
    (126, 16, 8),
    (61, 16, 2),
    (46, 4, 4),
    (7, 4, 2),
    (15, 4, 2),
    (94, 4, 6),
    (62, 8, 4),
    (5, 2, 3),
]
"""What the rules let a pipeline be."""
CASES = [*LAID_OUT, (10, 4, 2), (22, 8, 2), (13, 2, 3)]


@pytest.mark.parametrize(("layers", "stages", "virtual"), CASES)
def test_stages_hold_what_the_schedule_leaves_them(layers: int, stages: int, virtual: int) -> None:
    each = spread(layers, stages, virtual)
    assert sum(each) == layers
    for micro_batches in (stages, 2 * stages, 5 * stages):
        _, most = simulated(each, virtual, micro_batches, (0, 0))
        for stage, sizes in enumerate(chunk_sizes(each, virtual)):
            assert held_layers(sizes, stage, stages, micro_batches) == most[stage]
            flight = float(in_flight(stage, stages, virtual, micro_batches, layers))
            assert flight == stage_in_flight(each, stage, virtual, micro_batches)
            assert flight * each[stage] == pytest.approx(most[stage])


@pytest.mark.parametrize(("layers", "stages", "virtual"), LAID_OUT)
@pytest.mark.parametrize("ends", [(0, 0), (1, 1), (0, 1)])
def test_the_step_is_that_of_the_schedule(layers: int, stages: int, virtual: int, ends: tuple[int, int]) -> None:
    each = spread(layers, stages, virtual)
    for micro_batches in (2 * stages, 8 * stages):
        step, _ = simulated(each, virtual, micro_batches, ends)
        times = [3.0 * count for count in each]
        times[0], times[-1] = times[0] + 3 * ends[0], times[-1] + 3 * ends[1]
        formula = step_seconds(max(times), sum(times), 0.0, 0.0, micro_batches=micro_batches, virtual=virtual)
        chunk = max(times) / virtual
        assert -2 * chunk <= step - float(formula) <= chunk, "the formula is off by a chunk of one micro-batch or two"


def test_equal_chunks_are_those_of_the_plain_formula() -> None:
    for stage in range(4):
        assert held_layers((2, 2, 2), stage, 4, 12) == pytest.approx(6 * float(in_flight(stage, 4, 3, 12)))
