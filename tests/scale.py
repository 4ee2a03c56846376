"""How much of each check runs: a fixed sample by default, all with MESHWRIGHT_TEST_ALL=1. The code is the same."""

import os
from typing import Final

FULL: Final = os.environ.get("MESHWRIGHT_TEST_ALL", "") == "1"


def scaled(sample: int, full: int) -> int:
    """The number of cases to run: `sample` in `make test`, `full` in `make test-all`."""
    return full if FULL else sample
