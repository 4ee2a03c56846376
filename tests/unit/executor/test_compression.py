"""Quantised groups, and error feedback: what a step does not send, a later one does."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from executor.backends.compression import GROUP, Compressor, Int8, TopK, dequantised, quantised

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class Bucket:
    """What DDP hands to a hook."""

    def __init__(self, values: Any) -> None:
        self._values = values

    def buffer(self) -> Any:
        return self._values

    def index(self) -> int:
        return 0

    def is_last(self) -> bool:
        return True


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_a_value_is_off_by_half_a_code_of_its_group_at_most() -> None:
    values = torch.randn(10 * GROUP, generator=torch.Generator().manual_seed(1)) * 100
    codes, scales = quantised(values)
    assert codes.dtype == torch.int8
    off = (dequantised(codes, scales) - values).abs().view(-1, GROUP)
    assert bool((off <= scales.unsqueeze(1) * 0.5001).all())


def test_a_group_of_zeros_stays_zero() -> None:
    assert not dequantised(*quantised(torch.zeros(GROUP))).any()


@pytest.mark.parametrize(("hook", "steps", "off"), [(Int8, 20, 0.02), (TopK, 400, 0.6)])
def test_what_was_sent_adds_up_to_the_gradients(alone: None, hook: type[Compressor], steps: int, off: float) -> None:
    compressor = hook()
    gradient = torch.randn(1000, generator=torch.Generator().manual_seed(2))
    sent = torch.zeros_like(gradient)
    for _ in range(steps):
        sent += compressor.compressed(Bucket(gradient.clone())).wait()
    # Error feedback: the sum is short of what waits in the error alone, however many steps there were.
    waiting = compressor._errors[0][: len(gradient)]
    torch.testing.assert_close(sent + waiting, steps * gradient, rtol=1e-4, atol=1e-3)
    assert float((sent / steps - gradient).norm() / gradient.norm()) < off
