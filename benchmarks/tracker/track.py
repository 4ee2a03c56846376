"""PyTorch's memory trackers, with the peak of the whole step only and with frozen parameters allowed."""

from typing import Any

import torch
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed._tools.mem_tracker import MemTracker, _State


class _NoHook:
    """Stands for the hook of a parameter that has no gradient."""

    def remove(self) -> None:
        """Nothing to remove."""


class Peaks:
    """Keeps the peak snapshot of the device alone: the trackers' statistics by module are not needed, and slow."""

    _curr_mem_snap: dict[torch.device, dict[str, int]]
    _peak_mem: dict[torch.device, int]
    _peak_mem_snap: dict[torch.device, dict[str, int]]
    events: list[tuple[str, int]] | None = None
    """Operator and bytes alive after it, when asked for."""

    def _update_peak_stats(self, _: _State) -> None:
        for device, snapshot in self._curr_mem_snap.items():
            if self._peak_mem.get(device, 0) < snapshot["Total"]:
                self._peak_mem[device] = snapshot["Total"]
                self._peak_mem_snap[device] = dict(snapshot)

    def start_peak(self) -> dict[str, int]:
        """Forget the peak so far; the snapshot now."""
        self._peak_mem_snap = {device: dict(snapshot) for device, snapshot in self._curr_mem_snap.items()}
        self._peak_mem = {device: snapshot["Total"] for device, snapshot in self._curr_mem_snap.items()}
        return self.now()

    def now(self) -> dict[str, int]:
        """Bytes alive by kind."""
        return _plain(self._curr_mem_snap)

    def peak(self) -> dict[str, int]:
        """Bytes alive by kind at the peak."""
        return _plain(self._peak_mem_snap)


def _plain(snapshot: dict[torch.device, dict[str, int]]) -> dict[str, int]:
    found = snapshot.get(torch.device("cpu"), {})
    return {str(getattr(key, "value", key)): int(value) for key, value in found.items()}


class Tracker(Peaks, MemTracker):
    """One rank that holds everything."""

    def _track_module_params_and_buffers(self, module: torch.nn.Module, install_grad_hooks: bool = True) -> Any:
        # Upstream hooks every parameter, which torch refuses for frozen ones.
        for parameter in module.parameters():
            if not parameter.requires_grad:
                self._param_to_grad_hook_handles.setdefault(parameter, (_NoHook(), _NoHook()))  # type: ignore[arg-type]
        return super()._track_module_params_and_buffers(module, install_grad_hooks)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if self.events is not None:
            self.events.append((str(func), self.now().get("Total", 0)))
        return result


class ShardedTracker(Peaks, FSDPMemTracker):
    """One rank of FSDP2."""
