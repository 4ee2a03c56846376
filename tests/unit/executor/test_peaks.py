"""The memory readings, on tensors whose size is known."""

import gc
import sys

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

MIB = 2**20


def test_the_tracker_counts_what_was_alive_before_and_what_came_and_went() -> None:
    import torch

    from executor.peaks import tracked

    gc.collect()  # what earlier tests left in cycles must not die between the two readings
    with tracked():
        torch.zeros(1)  # nor what the first reading of a process makes
    kept = torch.zeros(4 * MIB // 4)
    layer = torch.nn.Linear(256, 256, bias=False)
    layer(torch.ones(1, 256)).sum().backward()
    with tracked() as empty:
        torch.zeros(1)
    with tracked() as outcome:
        temporary = torch.zeros(8 * MIB // 4)
        del temporary
        torch.zeros(2 * MIB // 4)
    assert empty.peak_bytes >= kept.nbytes + 2 * 256 * 256 * 4  # the weight, and its gradient that only C++ holds
    assert outcome.peak_bytes - empty.peak_bytes == pytest.approx(8 * MIB, abs=1024)


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
