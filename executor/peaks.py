"""Peak memory of this process, by device kind: what is read, how, and under which name it is reported.

CPU: allocated bytes are the peak of live tensor storages that PyTorch's `MemTracker` sees in one dedicated step
(`torch.distributed._tools.mem_tracker`), the analogue of `torch.cuda.max_memory_allocated`. Resident bytes are the
kernel's high-water mark VmHWM, reset at the start of a phase through `/proc/self/clear_refs` (proc(5)), above the
resident size before the model was built.
CUDA: `torch.cuda.max_memory_allocated` and `max_memory_reserved`, and what the driver says is in use.
"""

import ctypes
import gc
import os
import resource
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

TRACKER = "MemTracker peak of one step"
RESIDENT = "VmHWM minus baseline, malloc returning freed blocks"
RESIDENT_DEFAULT_MALLOC = "VmHWM minus baseline, default malloc"
CUDA_ALLOCATED = "torch.cuda.max_memory_allocated"
CUDA_RESERVED = "torch.cuda.max_memory_reserved"
DEVICE_NVML = "NVML memory used"
DEVICE_FREE = "cudaMemGetInfo, total minus free"
HOST = "ru_maxrss"

RETURNING_MALLOC: Final = {
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
    "MALLOC_ARENA_MAX": "1",
}
"""mallopt(3) by environment, read before main: freed blocks go back to the kernel, so resident memory follows live
memory. With the defaults it reads tens of per cent too high, because glibc keeps what was freed. It costs page faults:
`keep_freed_memory` ends it before steps are timed."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # mallopt(3)
_KEEP_BELOW_BYTES = 32 * 2**20
"""Where glibc's own dynamic threshold ends up on 64-bit (DEFAULT_MMAP_THRESHOLD_MAX)."""


class Peaks(Protocol):
    """Reads the peaks of one process."""

    allocated_method: str
    resident_method: str

    def reset(self) -> None:
        """Start a phase."""

    def resident(self) -> int:
        """Peak since `reset` of what the process holds. [bytes]"""

    def allocated(self) -> int | None:
        """Peak since `reset` of live tensors, where it costs nothing to know. [bytes]"""

    def now(self) -> int:
        """What is held at present. [bytes]"""

    def device_used(self) -> tuple[int, str] | None:
        """What the driver says is in use on the device now, and how that was read; None on a CPU. [bytes]"""

    def utilisation(self) -> float | None:
        """Share of the last moments in which the device was busy, where it tells."""

    def celsius(self) -> float | None:
        """Temperature of the device, where it tells."""

    def synchronize(self) -> None:
        """Wait for the device, so that a clock read next to it is right."""


class CpuPeaks:
    """The host process itself."""

    allocated_method = TRACKER

    def __init__(self) -> None:
        """Take the baseline. Call it after all imports: later ones would count as training memory."""
        returning = all(os.environ.get(name) == value for name, value in RETURNING_MALLOC.items())
        self.resident_method = RESIDENT if returning else RESIDENT_DEFAULT_MALLOC
        _toy_step()
        settle()
        self.baseline_bytes = _status_bytes("VmRSS")
        self.reset()

    def reset(self) -> None:
        """Set VmHWM to the present resident size."""
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")

    def resident(self) -> int:
        """VmHWM above the baseline. [bytes]"""
        return max(0, _status_bytes("VmHWM") - self.baseline_bytes)

    def allocated(self) -> int | None:
        """Unknown without the tracker, which slows a step down."""
        return None

    def now(self) -> int:
        """Resident size above the baseline. [bytes]"""
        return max(0, _status_bytes("VmRSS") - self.baseline_bytes)

    def device_used(self) -> tuple[int, str] | None:
        """There is no device beside the host."""
        return None

    def utilisation(self) -> float | None:
        """Not asked for: the time of the process tells."""
        return None

    def celsius(self) -> float | None:
        """Not read."""
        return None

    def synchronize(self) -> None:
        """A CPU step has ended when it returns."""


class CudaPeaks:
    """The current CUDA device."""

    allocated_method = CUDA_ALLOCATED
    resident_method = CUDA_RESERVED

    def reset(self) -> None:
        """Forget the peaks so far."""
        import torch

        torch.cuda.reset_peak_memory_stats()

    def resident(self) -> int:
        """Peak of what the caching allocator reserved. [bytes]"""
        import torch

        return int(torch.cuda.max_memory_reserved())

    def allocated(self) -> int | None:
        """Peak of allocated blocks. [bytes]"""
        import torch

        return int(torch.cuda.max_memory_allocated())

    def now(self) -> int:
        """Live blocks. [bytes]"""
        import torch

        return int(torch.cuda.memory_allocated())

    def device_used(self) -> tuple[int, str] | None:
        """As nvidia-smi shows it, through nvidia-ml-py; without it, as the runtime tells. [bytes]"""
        import torch

        try:
            return int(torch.cuda.device_memory_used()), DEVICE_NVML
        except (ImportError, AttributeError, RuntimeError):
            free, total = torch.cuda.mem_get_info()
            return int(total - free), DEVICE_FREE

    def utilisation(self) -> float | None:
        """Through nvidia-ml-py; None without it."""
        import torch

        try:
            return float(torch.cuda.utilization()) / 100
        except (ImportError, RuntimeError):
            return None

    def celsius(self) -> float | None:
        """Through nvidia-ml-py; None without it."""
        import torch

        try:
            return float(torch.cuda.temperature())
        except (ImportError, RuntimeError):
            return None

    def synchronize(self) -> None:
        """Wait for all kernels."""
        import torch

        torch.cuda.synchronize()


def host_peak() -> int:
    """Most that this process has held in the host's memory. [bytes]"""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def settle() -> None:
    """Collect garbage and give free heap pages back to the kernel."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def keep_freed_memory() -> None:
    """Undo `RETURNING_MALLOC` for the rest of the process, as glibc behaves by itself after large blocks were freed."""
    libc = ctypes.CDLL(None)
    libc.mallopt(_M_MMAP_THRESHOLD, _KEEP_BELOW_BYTES)
    libc.mallopt(_M_TRIM_THRESHOLD, 2 * _KEEP_BELOW_BYTES)


class TrackedStep:
    """Outcome of `tracked`."""

    peak_bytes: int = 0


@contextmanager
def tracked() -> Iterator[TrackedStep]:
    """Run one step under MemTracker; the peak counts every tensor alive on entry too. [bytes]"""
    outcome = TrackedStep()
    tracker = _total_tracker()
    tracker.track_external(*_live_tensors())
    with tracker:
        yield outcome
    snapshot = tracker.get_tracker_snapshot("peak")
    outcome.peak_bytes = sum(int(kinds["Total"]) for device, kinds in snapshot.items() if device.type == "cpu")


def _total_tracker() -> Any:
    """A MemTracker of the total alone.

    The statistics by module forbid a second micro-batch in a step, and their split is wrong for DeepSpeed's flat
    partitions; without them a step is several times faster and its total the same.
    """
    import torch
    from torch.distributed._tools.mem_tracker import MemTracker, _MemRefType
    from torch.utils._pytree import tree_leaves

    class TotalTracker(MemTracker):  # type: ignore[misc]  # torch's types are not followed
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func._schema.is_mutable:
                self._find_hidden(tree_leaves((args, kwargs)))
            return super().__torch_dispatch__(func, types, args, kwargs)

        def _find_hidden(self, leaves: list[Any]) -> None:
            """What is written to and was never seen has been there all along, held in C++ alone: the buckets of
            DistributedDataParallel. The peak so far was higher by it.
            """
            for tensor in leaves:
                if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided:
                    continue
                if tensor.device.type == "cpu" and self._WINFO.get(tensor.untyped_storage()) is None:
                    self._track(_MemRefType.OTH, tensor)
                    if tensor.device in self._peak_mem:
                        self._peak_mem[tensor.device] += tensor.untyped_storage().nbytes()
                        self._peak_mem_snap[tensor.device]["Total"] = self._peak_mem[tensor.device]

        def _update_peak_stats(self, peak_state: Any) -> None:
            for device, snapshot in self._curr_mem_snap.items():
                if self._peak_mem.get(device, 0) < snapshot["Total"]:
                    self._peak_mem[device] = snapshot["Total"]
                    self._peak_mem_snap[device] = dict(snapshot)

        def _ignore(self, *_: Any) -> None:
            """A module's own statistics are not kept."""

        _pre_fw_hook = _post_fw_hook = _pre_bw_hook = _post_bw_hook = _ignore

    return TotalTracker()


def _live_tensors() -> list[Any]:
    """One tensor per live storage. Gradients belong to C++ until asked for, so they are asked for."""
    import torch

    gc.collect()
    found: dict[int, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for candidate in gc.get_objects():
            if not issubclass(type(candidate), torch.Tensor):
                continue
            for tensor in (candidate, candidate.grad if candidate.is_leaf else None):
                if tensor is not None and tensor.layout is torch.strided and tensor.device.type == "cpu":
                    found.setdefault(tensor.untyped_storage()._cdata, tensor)
    return list(found.values())


def _toy_step() -> None:
    """Load what a first forward, backward and optimizer step load, so that the baseline holds it already."""
    import torch

    layer = torch.nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(8, 64)).square().mean().backward()
    optimizer.step()


def _status_bytes(key: str) -> int:
    """A `kB` line of /proc/self/status. [bytes]"""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0]) * 1024
    raise OSError(f"/proc/self/status has no {key}")
