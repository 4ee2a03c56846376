"""Rows of the tracker's CSV format. Sizes are GiB of live tensor storage."""

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from benchmarks.tracker.case import Case, config_json
from benchmarks.tracker.measure import Measured
from cost_models.hf_config import read_config
from cost_models.units import GIB

COLUMNS: Final = (
    "model", "layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "params", "precision", "mbs", "seq", "recompute",
    "attn", "optimizer", "sharding(world)", "param_gb", "grad_gb", "optstate_gb", "activation_gb", "temp_gb",
    "peak_total_gb", "tracker", "torch", "transformers", "trainable_params", "buffer_other_gb", "static_gb",
    "act_after_fwd_gb", "peak_fwd_gb", "peak_fwdbwd_gb", "peak_step_gb", "peak_phase", "grad_after_bwd_gb", "leak_gb",
    "unsharded_param_gb", "allgather_gb", "reducescatter_gb", "build_s", "run_s",
)  # fmt: skip
"""The common header."""
EXTRA: Final = ("model_type", "overrides", "padded", "chunks", "lora", "rank", "four_bit", "config")
"""Facts that the common header lacks."""
_WORDS: Final = {"fsdp-mp": "fsdp-mp(fp32 shard,bf16 compute,fp32 reduce)"}


def row(case: Case, measured: Measured) -> dict[str, str]:
    """One row of a case."""
    import json  # noqa: PLC0415

    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    spec = read_config(resolved(case))
    phase = max(("fwdbwd", "step"), key=lambda name: measured.peaks[name]["Total"])
    peak = measured.peaks[phase]
    grouped = _grouped(peak)
    sharded = {
        "unsharded_param_gb": "Unsharded Param",
        "allgather_gb": "All Gather",
        "reducescatter_gb": "Reduce Scatter",
    }
    values: dict[str, Any] = {
        "model": case.name, "layers": spec.num_hidden_layers, "hidden": spec.hidden_size,
        "heads": spec.num_attention_heads, "kv_heads": spec.num_key_value_heads, "ffn": spec.intermediate_size,
        "vocab": spec.vocab_size, "params": measured.parameters,
        "precision": _WORDS.get(case.precision, case.precision), "mbs": case.micro_batch, "seq": case.sequence,
        "recompute": case.recompute, "attn": case.attention, "optimizer": case.optimizer,
        "sharding(world)": case.sharding,
        **{f"{name}_gb": _gib(value) for name, value in grouped.items()},
        "peak_total_gb": _gib(peak["Total"]),
        "tracker": ("FSDPMemTracker" if case.world > 1 else "MemTracker") + "/FakeTensor(cpu)",
        "torch": torch.__version__, "transformers": transformers.__version__, "trainable_params": measured.trained,
        "static_gb": _gib(measured.static["Total"]),
        "act_after_fwd_gb": _gib(_grouped(measured.after_forward)["activation"]),
        "peak_fwd_gb": _gib(measured.peaks["fwd"]["Total"]), "peak_fwdbwd_gb": _gib(measured.peaks["fwdbwd"]["Total"]),
        "peak_step_gb": _gib(measured.peaks["step"]["Total"]), "peak_phase": phase,
        "grad_after_bwd_gb": _gib(_grouped(measured.after_backward)["grad"]),
        "leak_gb": _gib(measured.after_step["Total"] - measured.static["Total"]),
        **({name: _gib(peak.get(key, 0)) for name, key in sharded.items()} if case.world > 1 else {}),
        "build_s": f"{measured.build_seconds:.1f}", "run_s": f"{measured.run_seconds:.1f}",
        "model_type": spec.model_type, "overrides": json.dumps(dict(case.overrides), sort_keys=True),
        "padded": int(case.padded), "chunks": case.chunks, "lora": case.lora, "rank": case.rank if case.lora else "",
        "four_bit": int(case.four_bit),
        "config": json.dumps(_sizes(case), sort_keys=True) if case.model.startswith("family:") else "",
    }  # fmt: skip
    return {name: str(values.get(name, "")) for name in (*COLUMNS, *EXTRA)}


def resolved(case: Case) -> dict[str, Any]:
    """Every key of the model's config.json, transformers' defaults included."""
    from transformers import AutoConfig  # noqa: PLC0415  slow to import

    keys = config_json(case)
    if not case.model.startswith("family:"):
        return keys
    return {**AutoConfig.for_model(**keys).to_dict(), **case.overrides}


def _sizes(case: Case) -> dict[str, Any]:
    """The plain keys of a family's default config.json."""
    return {
        key: value
        for key, value in resolved(case).items()
        if isinstance(value, int | float | str | list) and value != []
    }


def _grouped(snapshot: dict[str, int]) -> dict[str, int]:
    """The trackers' kinds under the header's names."""
    names = {
        "param": ("Parameter", "Sharded Param", "Unsharded Param"),
        "grad": ("Gradient", "Sharded Grad", "Unsharded Grad"),
        "optstate": ("Optstate", "OptState"),
        "activation": ("Activation",),
        "temp": ("Temp", "All Gather", "Reduce Scatter"),
        "buffer_other": ("Buffer", "Inputs"),
    }
    return {name: sum(snapshot.get(key, 0) for key in keys) for name, keys in names.items()}


def _gib(value: int) -> str:
    return f"{value / GIB:.9f}"


def write(path: Path, rows: Iterable[dict[str, str]]) -> None:
    """Append rows; a new file gets the header."""
    fresh = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=(*COLUMNS, *EXTRA), lineterminator="\n")
        if fresh:
            writer.writeheader()
        for each in rows:
            writer.writerow(each)
            file.flush()
