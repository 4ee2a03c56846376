"""The copy of PyTorch's caching allocator, against its documented rules."""

import random
from typing import Any

import pytest

from cost_models.memory.caching import MIB, CachingAllocator, DeviceFull


@pytest.mark.parametrize(
    ("size", "reserved"),
    [(1, 2), (MIB, 2), (MIB + 1, 20), (9 * MIB, 20), (10 * MIB, 10), (10 * MIB + 1, 12), (100 * MIB + 1, 102)],
)
def test_a_segment_has_the_size_of_its_class(size: int, reserved: int) -> None:
    memory = CachingAllocator()
    memory.allocate(size)
    assert memory.reserved == reserved * MIB


def test_requests_are_rounded_to_512_bytes() -> None:
    memory = CachingAllocator()
    memory.allocate(1)
    memory.allocate(513)
    assert memory.allocated == 512 + 1024
    assert memory.allocate(0) is None


def test_a_freed_block_is_used_again_and_the_smallest_that_fits_is_taken() -> None:
    memory = CachingAllocator()
    large, small = memory.allocate(64 * MIB), memory.allocate(32 * MIB)
    memory.release(large)
    memory.release(small)
    memory.allocate(30 * MIB)
    assert memory.reserved == 96 * MIB
    memory.allocate(64 * MIB)
    assert memory.reserved == 96 * MIB


def test_small_and_large_requests_share_no_segment() -> None:
    memory = CachingAllocator()
    memory.release(memory.allocate(64 * MIB))
    memory.allocate(MIB)
    assert memory.reserved == 66 * MIB


def test_a_large_block_is_not_split_for_a_rest_of_up_to_one_mebibyte() -> None:
    memory = CachingAllocator()
    memory.release(memory.allocate(64 * MIB))
    memory.allocate(63 * MIB)
    assert memory.allocated == 64 * MIB


def test_freed_neighbours_merge() -> None:
    memory = CachingAllocator()
    memory.release(memory.allocate(60 * MIB))
    parts = [memory.allocate(20 * MIB) for _ in range(3)]
    for part in (parts[0], parts[2], parts[1]):
        memory.release(part)
    memory.allocate(60 * MIB)
    assert memory.reserved == 60 * MIB


def test_a_fragmented_device_returns_its_free_segments_before_it_gives_up() -> None:
    memory = CachingAllocator(capacity=100 * MIB)
    memory.release(memory.allocate(60 * MIB))
    memory.allocate(80 * MIB)
    assert (memory.reserved, memory.peak_reserved) == (80 * MIB, 80 * MIB)
    with pytest.raises(DeviceFull):
        memory.allocate(40 * MIB)


def test_an_expandable_pool_grows_instead_of_fragmenting() -> None:
    plain, expandable = CachingAllocator(), CachingAllocator(expandable=True)
    for memory in (plain, expandable):
        memory.release(memory.allocate(40 * MIB))
        memory.allocate(60 * MIB)
    assert plain.reserved == 100 * MIB
    assert expandable.reserved == 60 * MIB


@pytest.mark.parametrize("expandable", [False, True])
def test_any_history_keeps_the_books(expandable: bool) -> None:
    draw = random.Random(7)
    memory = CachingAllocator(expandable=expandable)
    held: list[Any] = []
    for _ in range(3000):
        if held and draw.random() < 0.5:
            memory.release(held.pop(draw.randrange(len(held))))
        else:
            held.append(memory.allocate(draw.choice([300, 70_000, 3 * MIB, 17 * MIB + 3])))
        assert memory.allocated == sum(block.size for block in held if block)
        assert memory.allocated <= memory.reserved
    for block in held:
        memory.release(block)
    assert memory.allocated == 0
    assert sum(size for blocks in memory._free.values() for size, _, _ in blocks) == memory.reserved
