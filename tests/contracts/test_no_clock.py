"""Answers do not depend on how fast a machine is: nothing below the planner reads a clock or draws by chance."""

from tests.contracts.tree import imports, sources

CLOCKS = {"time", "datetime", "random", "secrets", "uuid"}


def test_solver_and_cost_models_read_no_clock() -> None:
    readers = {
        f"{path}: {name}" for path, tree in sources("solver", "cost_models") for name in imports(tree) if name in CLOCKS
    }
    assert not readers
