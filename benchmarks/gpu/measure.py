"""Measure one NVIDIA GPU: `python -m benchmarks.gpu.measure --out FOLDER`, in 8 minutes at most.

`FOLDER/runs.csv` gets training runs as rows of the common measurement header, `FOLDER/kernels.csv` rates of kernels.
Each row is on disk before the next is begun: stop it at any time, and start it again to go on where it stopped. Copied
alone into a folder, runs.csv is what `meshwright validate --data` reads. Without a GPU it says so and ends; `--tiny`
tries the script itself on a CPU, with sizes that say nothing about any device.
"""

import argparse
import csv
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.gpu import kernels, runs
from planner.measurement import HEADER

_REF = "benchmarks/gpu/measure.py:"
_GIB = 2**30


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("gpu-rows"))
    parser.add_argument("--minutes", type=float, default=8.0, help="begin nothing new after this")
    parser.add_argument("--tiny", action="store_true", help="try the script on a CPU")
    options = parser.parse_args(arguments)
    try:
        import torch
        import transformers
    except ImportError as error:
        sys.stderr.write(f"{error.name} is not installed; this script needs torch and transformers\n")
        return 1
    if not options.tiny and not torch.cuda.is_available():
        sys.stderr.write(
            "no CUDA device: torch sees none here, so there is nothing to measure (--tiny tries the script)\n"
        )
        return 1
    device = torch.device("cpu" if options.tiny else "cuda")
    name = "cpu" if options.tiny else torch.cuda.get_device_name(device)
    options.out.mkdir(parents=True, exist_ok=True)
    releases = f"torch {torch.__version__}, transformers {transformers.__version__}"
    deadline = time.monotonic() + 60 * options.minutes
    try:
        _kernels(options.out / "kernels.csv", device, name, tiny=options.tiny)
        left = _runs(options.out / "runs.csv", device, name, releases, deadline, tiny=options.tiny)
    except KeyboardInterrupt:
        sys.stderr.write("stopped; start again to go on\n")
        return 130
    if left:
        sys.stderr.write(f"time is up with {left} runs left; start again to go on\n")
    return 0


def _kernels(path: Path, device: Any, name: str, *, tiny: bool) -> None:
    """Kernels take seconds: they are measured whole, once."""
    if path.is_file():
        return
    temporary = path.with_suffix(".part")
    with temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(kernels.HEADER)
        for kernel, dtype, shape, seconds, rate, unit in kernels.rows(device, tiny=tiny):
            writer.writerow((name, kernel, dtype, shape, f"{seconds:.6g}", f"{rate:.6g}", unit))
            print(f"{kernel} {dtype} {shape}: {rate:.4g} {unit}", flush=True)
    temporary.replace(path)


def _runs(path: Path, device: Any, name: str, releases: str, deadline: float, *, tiny: bool) -> int:
    """Runs not done yet, until time is up; how many are left."""
    done = _done(path)
    open_runs = [run for run in runs.planned(tiny=tiny) if run.name not in done]
    shapes = runs.TINY_SHAPES if tiny else runs.SHAPES
    for index, run in enumerate(open_runs):
        if time.monotonic() >= deadline:
            return len(open_runs) - index
        measured = runs.measure(run, shapes[run.model], device)
        _append(path, row(run, shapes[run.model], measured, name, _total_gib(device), releases))
        print(f"{run.name}: {measured.outcome} {measured.step_seconds or 0:.4g} s", flush=True)
    return 0


def _done(path: Path) -> set[str]:
    """Names of the runs in the file. A last line that was cut off is taken away."""
    if not path.is_file():
        return set()
    text = path.read_text(encoding="utf-8")
    if not text.endswith("\n"):
        path.write_text(text[: text.rfind("\n") + 1], encoding="utf-8")
    with path.open(newline="", encoding="utf-8") as file:
        return {line["ref"].removeprefix(_REF) for line in csv.DictReader(file)}


def _append(path: Path, cells: Iterable[object]) -> None:
    fresh = not path.is_file() or path.stat().st_size == 0
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        if fresh:
            writer.writerow(HEADER)
        writer.writerow(cells)
        file.flush()
        os.fsync(file.fileno())


def row(
    run: runs.Run, shape: runs.Shape, measured: runs.Measured, gpu: str, total_gib: float | None, releases: str
) -> list[object]:
    """Cells in the order of the header; an empty one is unknown."""
    tokens = {
        "attention": run.attention,
        "cross_entropy": "eager",
        "tied": "no",
        "lengths": "fixed",
        "memory_unit": "GiB",
        "pure_low_precision": "yes" if run.precision == "bf16-pure" else "no",
        **({"lora_rank": runs.LORA_RANK, "lora_targets": "all-linear"} if run.method == "lora" else {}),
        **{
            key: f"{size / _GIB:.4f}"
            for key, size in (("allocated", measured.allocated), ("process", measured.device))
            if size is not None
        },
    }
    notes = "; ".join((releases, " ".join(f"{key}={value}" for key, value in tokens.items())))
    step, sequences = measured.step_seconds, run.micro_batch * run.accumulation
    values: dict[str, object] = {
        "source": "meshwright-gpu", "ref": f"{_REF}{run.name}", "model": run.model,
        "params_b": round(measured.parameters / 1e9, 4), "layers": shape.layers, "hidden": shape.hidden,
        "heads": shape.heads, "kv_heads": shape.kv_heads, "ffn_hidden": shape.ffn, "vocab": shape.vocab,
        "seq_len": run.sequence, "gpu": gpu, "gpu_mem_gb": total_gib, "n_gpus": 1, "gpus_per_node": 1,
        "framework": "transformers (plain PyTorch loop)",
        "precision": {"bf16": "bf16 autocast", "bf16-pure": "bf16 pure"}.get(run.precision, run.precision),
        "method": run.method, "tp": 1, "pp": 1, "cp": 1, "dp": 1, "zero_stage": 0, "offload": "none",
        "micro_batch": run.micro_batch, "grad_accum": run.accumulation, "global_batch_seqs": sequences,
        "recompute": run.recompute, "optimizer": run.optimizer,
        "step_time_s": None if step is None else f"{step:.6g}",
        "tokens_per_s_per_gpu": None if step is None else f"{sequences * run.sequence / step:.6g}",
        "peak_mem_gb": None if measured.reserved is None else f"{measured.reserved / _GIB:.4f}",
        "mem_kind": "" if measured.reserved is None else "reserved", "outcome": measured.outcome, "notes": notes,
    }  # fmt: skip
    return [values.get(column) for column in HEADER]


def _total_gib(device: Any) -> float | None:
    import torch

    if device.type == "cpu":
        return None
    return round(float(torch.cuda.get_device_properties(device).total_memory) / _GIB, 2)


if __name__ == "__main__":
    raise SystemExit(main())
