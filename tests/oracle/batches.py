"""Seeded random batches of the inner problem: coefficients that behave like prices, abilities of every kind, some with
their stages in two pools.
"""

import numpy as np

from cost_models.schedule import spread
from solver.bounds.batch import Batch, Shape
from solver.rounding import StageMemory, StageTimes


def shape(rng: np.random.Generator) -> Shape:
    """A shape small enough to enumerate."""
    stages = int(rng.choice([1, 1, 2, 3]))
    virtual = 2 if stages == 2 and rng.random() < 0.3 else 1
    short = virtual > 1 and bool(rng.random() < 0.4)
    layers = int(
        rng.choice(
            [3, 7]
            if short
            else [4, 8]
            if virtual > 1
            else [stages * n for n in (1, 2, 3) if stages * n <= 6]
            if rng.random() < 0.6
            else [4, 5, 6]
        )
    )
    kinds = 2 if rng.random() < 0.3 else 1
    even = layers % stages == 0 and bool(rng.random() < 0.35)
    recompute = int(rng.choice([0, 1, 2])) if even or virtual > 1 or stages == 1 else int(rng.choice([1, 2]))
    recompute = 0 if short else recompute
    offloads = bool(rng.random() < 0.4)
    order = tuple(int(k) for k in rng.integers(0, kinds, layers)) if kinds > 1 else (0,) * layers
    return Shape(
        stages=stages,
        virtual=virtual,
        order=order,
        kinds=kinds,
        even=even or stages == 1,
        mixed=bool(rng.random() < 0.4) and recompute == 2,
        recompute=recompute,
        offload=int(rng.integers(0, 3)) if offloads else 0,
        offloads=offloads,
        needs_full=bool(rng.random() < 0.2),
        given=spread(layers, stages, virtual) if short else None,
    )


def batch(seed: int, rows: int = 3) -> Batch:
    """A batch of random rows of one random shape."""
    rng = np.random.default_rng(seed)
    s, instants = shape(rng), 3
    first = int(rng.integers(1, s.stages)) if s.stages > 1 and rng.random() < 0.35 else s.stages
    lengths = [first, s.stages - first] if first < s.stages else [s.stages]
    of_stage = np.repeat(np.arange(len(lengths)), lengths) if first < s.stages else np.zeros(1, dtype=int)

    def ints(low: int, high: int, *size: int) -> np.ndarray:
        return rng.integers(low, high + 1, size=(rows, *size)).astype(float)

    def by_pool(low: int, high: int, *size: int) -> np.ndarray:
        return ints(low, high, len(lengths), *size)[:, of_stage]

    kept = np.sort(ints(0, 40, s.stages, instants, s.kinds, 3), axis=-1)[..., ::-1]
    spread = np.sort(by_pool(10, 60, s.kinds, 3), axis=-1)
    if rng.random() < 0.2:
        spread = rng.permuted(spread, axis=-1)
    memory = StageMemory(
        constant=ints(0, 60, s.stages, instants),
        layer=kept + ints(0, 20, 1, instants, s.kinds, 1),
        working=ints(0, 30, s.stages, instants, 3),
        offload_saving=by_pool(0, 15, s.kinds),
        capacity=by_pool(60, 260),
        host_constant=ints(0, 5, s.stages),
        host_layer=by_pool(0, 6, s.kinds),
        host_capacity=by_pool(5, 80),
        selector=rng.integers(0, 2, instants).astype(float),
    )
    time = StageTimes(
        layer=spread,
        stage=ints(0, 40, s.stages),
        layer_tail=by_pool(0, 10, s.kinds),
        layer_offload=by_pool(0, 12, s.kinds),
        stage_tail=ints(0, 30, s.stages),
        fixed=ints(0, 50),
    )
    return Batch(
        shape=s,
        memory=memory,
        time=time,
        micro_batches=rng.integers(1, 5, rows) * (s.stages if s.virtual > 1 else 1),
        ranks_per_stage=rng.choice([1, 2, 4], rows),
        nodes=tuple((length, int(rng.choice([1, 2, 4]))) for length in lengths),
        max_time=np.where(rng.random(rows) < 0.8, np.inf, ints(100, 1500)),
    )
