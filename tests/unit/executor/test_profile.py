"""The parts of a profiled step."""

import pytest

from executor.profile import profiled, split_of, union, without


def test_intervals() -> None:
    assert union([(3, 4), (0, 1), (1, 2)]) == [(0, 2), (3, 4)]
    assert without([(0, 10)], [(2, 3), (5, 11)]) == [(0, 2), (3, 5)]
    assert without([(0, 1)], [(2, 3)]) == [(0, 1)]


def test_what_runs_beside_compute_is_hidden_and_the_parts_sum_to_the_step() -> None:
    events = [
        ("aten::mm", 0.0, 4.0, False),
        ("aten::addmm", 1.0, 2.0, False),  # inside the other
        ("gloo:all_reduce", 3.0, 6.0, False),
        ("c10d::allreduce_", 3.0, 3.1, False),
        ("Optimizer.step#AdamW.step", 6.0, 8.0, False),
        ("aten::mul", 6.5, 7.0, False),  # the optimizer's
    ]
    split = split_of(events, 10.0, cuda=False)
    assert (split.compute, split.communication, split.communication_hidden) == (4.0, 2.0, 1.0)
    assert (split.optimizer, split.offload, split.other) == (2.0, 0.0, 2.0)
    assert split.communication_share == pytest.approx(0.2)


def test_on_a_gpu_its_kernels_count_and_not_the_host_that_runs_ahead() -> None:
    events = [
        ("aten::mm", 0.0, 9.0, False),
        ("gemm", 2.0, 4.0, True),
        ("Memcpy HtoD (Pinned -> Device)", 4.0, 5.0, True),
        ("ncclDevKernel_AllReduce", 3.0, 7.0, True),
    ]
    split = split_of(events, 10.0, cuda=True)
    assert (split.compute, split.communication, split.offload) == (2.0, 3.0, 0.0)
    assert split.communication_hidden == 1.0


@pytest.mark.torch
def test_a_real_step() -> None:
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(512, 512)
    optimizer = torch.optim.AdamW(layer.parameters())
    with profiled() as outcome:
        layer(torch.ones(64, 512)).square().mean().backward()
        optimizer.step()
    split = outcome.split
    assert split is not None
    assert split.compute > 0
    assert split.optimizer > 0
    parts = split.compute + split.communication + split.optimizer + split.offload + split.other
    assert parts == pytest.approx(split.step_seconds)
