"""The audit's exact search against enumeration and against CP-SAT: three formulations of the inner problem agree."""

import numpy as np
import pytest

from solver.audit.paths import Unsettled, find
from solver.inner import solve_row
from tests.oracle.audit_rows import audit_row
from tests.oracle.batches import batch
from tests.oracle.layouts import layouts, pay
from tests.scale import scaled

SEEDS = range(20_000, 20_000 + scaled(60, 3000))


@pytest.mark.parametrize("seed", SEEDS)
def test_paths_find_exactly_what_enumeration_finds(seed: int) -> None:
    rows = batch(seed)
    for i in range(len(rows)):
        row = rows.row(i)
        audited = audit_row(row)
        fitting = [paid for paid in (pay(row, layout) for layout in layouts(row)) if paid.fits]
        fastest = min((paid.time for paid in fitting), default=None)
        leanest = min((paid.memory for paid in fitting), default=None)
        limit = np.inf if row.max_time is None else float(row.max_time)
        try:
            found = find(audited, limit, np.inf)
            assert (found is None) == (fastest is None)
            if found is None or fastest is None or leanest is None:
                continue
            time, peak = audited.cost(found)
            assert time >= fastest
            assert peak >= leanest
            assert audited.hosted(found)
            at_best = find(audited, fastest, np.inf)
            assert at_best is not None
            assert audited.cost(at_best)[0] == fastest
            assert find(audited, fastest - 1, np.inf) is None
            at_least = find(audited, limit, leanest)
            assert at_least is not None
            assert audited.cost(at_least)[1] == leanest
            assert find(audited, limit, leanest - 1) is None
        except Unsettled:
            assert (row.node_loads > np.zeros(1)).any()
            answer = solve_row(row, "time", deterministic_time=10.0)
            assert (None if answer.cost is None else answer.cost.time) == fastest
