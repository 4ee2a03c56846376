"""The memory readings, on tensors whose size is known."""

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

MIB = 2**20


READINGS = """
import torch
from executor.peaks import tracked

kept = torch.zeros(4 * 2**20 // 4)
layer = torch.nn.Linear(256, 256, bias=False)
layer(torch.ones(1, 256)).sum().backward()
with tracked() as empty:
    torch.zeros(1)
with tracked() as outcome:
    temporary = torch.zeros(8 * 2**20 // 4)
    del temporary
    torch.zeros(2 * 2**20 // 4)
print(kept.nbytes, empty.peak_bytes, outcome.peak_bytes)
"""


def test_the_tracker_counts_what_was_alive_before_and_what_came_and_went() -> None:
    """In a process of its own: what other tests left behind may die between the two readings."""
    done = subprocess.run([sys.executable, "-c", READINGS], check=True, capture_output=True, text=True)
    kept, empty, outcome = map(int, done.stdout.split())
    assert empty >= kept + 2 * 256 * 256 * 4  # the weight, and its gradient that only C++ holds
    assert outcome - empty == pytest.approx(8 * MIB, abs=1024)


def test_two_micro_batches_in_one_tracked_step() -> None:
    import torch

    from executor.peaks import tracked

    layer = torch.nn.Linear(64, 64)
    with tracked() as outcome:
        for _ in range(2):
            layer(torch.ones(8, 64)).sum().backward()
    assert outcome.peak_bytes > 0


def test_the_resident_peak_is_above_the_baseline_and_can_be_reset() -> None:
    import torch

    from executor.peaks import CpuPeaks

    peaks = CpuPeaks()
    block = torch.ones(64 * MIB // 4)
    held = peaks.resident()
    assert held == pytest.approx(64 * MIB, rel=0.1)
    del block
    peaks.reset()
    assert peaks.resident() < 8 * MIB
