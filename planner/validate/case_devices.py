"""The device, host and model of a report whose words name no one entry of the catalogue."""

import re
from functools import cache
from typing import Final

from cost_models import catalog
from cost_models.errors import SpecError
from cost_models.parameters import total_parameters
from cost_models.specs.cluster import DeviceSpec
from planner.datasets.case_reading import Question
from planner.datasets.cases import UserCase
from planner.datasets.shapes import preset_of
from planner.datasets.unusable import Unusable

_GB: Final = 10**9
_ALIKE: Final = 0.06
"""How far two sizes may differ and still be one card (80 GB is 80 or 85.9 x 10^9 bytes)."""
_UNSTATED_HOST: Final = 10**16
"""Host memory where a report states none: never what fails. [bytes]"""


def device_of(case: UserCase) -> tuple[DeviceSpec, tuple[str, ...]]:
    """The device: by name, by the first of several names, or any of the stated memory.

    Raises:
        Unusable: neither a name nor a size.
    """
    memory = case.size("hardware", "mem_gb")
    named = _named(str(case.stated("hardware", "gpu") or ""))
    fitting = [device for device in named if memory is None or _same(device, memory)]
    if fitting:
        return fitting[0], ()
    if memory is None:
        if named:
            return named[0], (f"device: {named[0].name} assumed",)
        raise Unusable("device not stated")
    nearest = min(named or _gpus(), key=lambda device: abs(device.marketing_memory_bytes / _GB - memory))
    scale = memory * _GB / nearest.marketing_memory_bytes
    if _same(nearest, memory):
        return nearest, (f"device: {nearest.name} assumed from {memory:g} GB",)
    sizes = {
        key: int(getattr(nearest, key) * scale)
        for key in ("marketing_memory_bytes", "total_memory_bytes", "usable_memory_bytes")
    }
    return nearest.model_copy(update=sizes), (f"device: {nearest.name} with {memory:g} GB assumed",)


def _gpus() -> tuple[DeviceSpec, ...]:
    """The catalogue's GPUs, those of the usual kind first."""
    order = ("a100-sxm-80gb", "a100-sxm-40gb", "rtx-3090", "rtx-a6000", "h100-sxm-96gb", "h200-sxm")
    every = [device for device in catalog.devices() if device.kind == "gpu"]
    return tuple(sorted(every, key=lambda d: order.index(d.name) if d.name in order else len(order)))


def _named(text: str) -> tuple[DeviceSpec, ...]:
    for name in (text, *re.split(r"/|,| or ", text)):
        cleaned = re.sub(r"\b(?:class|gpu|hbm\d\w?)\b|[-_ ](?:class)\b", "", name, flags=re.IGNORECASE).strip(" -")
        for spelling in (name.strip(), cleaned):
            try:
                return catalog.device_candidates(spelling)
            except SpecError:
                continue
    return ()


def _same(device: DeviceSpec, memory: float) -> bool:
    sizes = (device.marketing_memory_bytes / _GB, device.total_memory_bytes / _GB, device.total_memory_bytes / 2**30)
    return any(abs(size / memory - 1) <= _ALIKE for size in sizes)


def host_bytes_of(case: UserCase) -> int:
    """Host memory of one node, or more than any where none is stated."""
    stated = case.size("hardware", "host_ram_gb")
    return _UNSTATED_HOST if stated is None else int(stated * _GB)


def model_name_of(case: UserCase, question: Question) -> tuple[str, tuple[str, ...]]:
    """The model's name, or the preset of the nearest size where only a size is stated.

    Raises:
        Unusable: neither a shape, a preset nor a size.
    """
    name, row = question.row.model, question.row
    if preset_of(name) is not None or (row.layers and row.hidden):
        return name, ()
    size = case.size("model", "params_b")
    if size is None:
        raise Unusable("model not stated")
    nearest = min(_sizes(), key=lambda entry: (abs(entry[1] / (size * 1e9) - 1), entry[0]))
    return nearest[0], (f"model: shape not stated, {nearest[0]} of about {size:g}B parameters assumed",)


@cache
def _sizes() -> tuple[tuple[str, float], ...]:
    """Dense Llama-like presets and their parameters."""
    found = []
    for name in catalog.models():
        if re.match(r"llama-[23]|qwen2\.5-|qwen3-\d", name):
            spec = catalog.model(name)
            if spec.moe is None:
                found.append((name, float(total_parameters(spec))))
    return tuple(found)
