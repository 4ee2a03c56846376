"""PyTorch's caching allocator on one stream: which bytes it reserves for a sequence of requests and frees.

Requests are rounded to 512 bytes; up to 1 MiB they come from 2 MiB segments, below 10 MiB from 20 MiB segments, above
from segments of their own, rounded to 2 MiB. The smallest free block that fits is taken and split where the rest is
worth it; freed neighbours merge. When the device is full, segments that are wholly free are returned and the request is
tried once more.

Source: PyTorch `c10/cuda/CUDACachingAllocator.cpp` and `c10/core/AllocatorConfig.h` (kMinBlockSize, kSmallSize,
kSmallBuffer, kMinLargeAlloc, kLargeBuffer, kRoundLarge; expandable_segments).
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import Final

MIB: Final = 2**20
SMALLEST: Final = 512
SMALL: Final = MIB
SMALL_SEGMENT: Final = 2 * MIB
LARGE_FROM: Final = 10 * MIB
LARGE_SEGMENT: Final = 20 * MIB
LARGE_ROUNDING: Final = 2 * MIB


class DeviceFull(Exception):
    """No segment fits on the device, not even after returning the free ones."""


@dataclass(slots=True, eq=False)
class Block:
    """A part of a segment."""

    size: int
    small: bool
    number: int
    free: bool = False
    before: "Block | None" = None
    after: "Block | None" = None


@dataclass(slots=True)
class CachingAllocator:
    """Counts only: nothing is allocated."""

    capacity: float = float("inf")
    """What segments may take together. [bytes]"""
    expandable: bool = False
    """Whether each pool is one segment that grows (expandable_segments:True)."""
    allocated: int = 0
    reserved: int = 0
    peak_allocated: int = 0
    peak_reserved: int = 0
    _free: dict[bool, list[tuple[int, int, Block]]] = field(default_factory=lambda: {True: [], False: []})
    _last: dict[bool, Block] = field(default_factory=dict)
    _numbers: int = 0

    def allocate(self, size: float) -> Block | None:
        """A block of at least `size` bytes; None for an empty tensor.

        Raises:
            DeviceFull: the device holds no more.
        """
        wanted = -(-int(size) // SMALLEST) * SMALLEST
        if wanted <= 0:
            return None
        small = wanted <= SMALL
        block = self._taken(wanted, small) or self._segment(wanted, small)
        rest = block.size - wanted
        if rest >= SMALLEST if small else rest > SMALL:
            self._split(block, wanted)
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return block

    def release(self, block: Block | None) -> None:
        """Give a block back to its pool, merged with its free neighbours."""
        if block is None:
            return
        self.allocated -= block.size
        for neighbour in (block.before, block.after):
            if neighbour is not None and neighbour.free:
                self._forget(neighbour)
                self._join(block, neighbour)
        self._offer(block)

    def _taken(self, wanted: int, small: bool) -> Block | None:
        blocks = self._free[small]
        at = bisect_left(blocks, (wanted, -1))
        if at == len(blocks):
            return None
        block = blocks.pop(at)[2]
        block.free = False
        return block

    def _segment(self, wanted: int, small: bool) -> Block:
        """A new segment, or the pool's one segment made longer."""
        size = SMALL_SEGMENT if small else LARGE_SEGMENT
        if self.expandable:
            last = self._last.get(small)
            spare = last.size if last is not None and last.free else 0
            size *= -(-(wanted - spare) // size)
        elif wanted >= LARGE_FROM:
            size = -(-wanted // LARGE_ROUNDING) * LARGE_ROUNDING
        if self.reserved + size > self.capacity:
            self._return_free_segments()
            if self.reserved + size > self.capacity:
                raise DeviceFull
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        block = self._new(size, small)
        if self.expandable:
            self._append(block, small)
        return block

    def _append(self, block: Block, small: bool) -> None:
        """Put new bytes at the end of the pool's one segment."""
        last = self._last.get(small)
        if last is not None:
            last.after, block.before = block, last
            if last.free:
                self._forget(last)
                self._join(block, last)
        self._last[small] = block

    def _new(self, size: int, small: bool) -> Block:
        self._numbers += 1
        return Block(size, small, self._numbers)

    def _split(self, block: Block, wanted: int) -> None:
        rest = self._new(block.size - wanted, block.small)
        rest.before, rest.after = block, block.after
        if block.after is not None:
            block.after.before = rest
        block.after, block.size = rest, wanted
        if self._last.get(block.small) is block:
            self._last[block.small] = rest
        self._offer(rest)

    def _join(self, block: Block, neighbour: Block) -> None:
        block.size += neighbour.size
        if neighbour is block.before:
            block.before = neighbour.before
            if block.before is not None:
                block.before.after = block
        else:
            block.after = neighbour.after
            if block.after is not None:
                block.after.before = block
        if self._last.get(block.small) is neighbour:
            self._last[block.small] = block

    def _offer(self, block: Block) -> None:
        block.free = True
        insort(self._free[block.small], (block.size, block.number, block))

    def _forget(self, block: Block) -> None:
        block.free = False
        blocks = self._free[block.small]
        del blocks[bisect_left(blocks, (block.size, block.number))]

    def _return_free_segments(self) -> None:
        for small, blocks in self._free.items():
            whole = [entry for entry in blocks if entry[2].before is None and entry[2].after is None]
            self._free[small] = [entry for entry in blocks if entry not in whole]
            self.reserved -= sum(entry[0] for entry in whole)
            if whole and self._last.get(small) is whole[-1][2]:
                del self._last[small]
