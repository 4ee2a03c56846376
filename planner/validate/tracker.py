"""Rows of PyTorch's memory tracker against the ledger: total and per phase.

Format: benchmarks/tracker/rows.py. A row names a model, its training and its batch; its sizes are GiB of live tensors.
"""

import csv
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cost_models import catalog
from cost_models.errors import MeshwrightError
from cost_models.hf_config import read_config
from cost_models.job import Job
from cost_models.ledger import MemoryLedger, StageMemory
from cost_models.memory import memory_ledger
from cost_models.memory.eager import forward_bytes
from cost_models.memory.options import facts_of
from cost_models.memory.setting import Setting
from cost_models.parameters import layer_parameters, total_parameters
from cost_models.pools import pool
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.configuration import Configuration
from cost_models.specs.framework import FrameworkFacts
from cost_models.specs.model import ModelSpec
from cost_models.specs.training import LoraSpec, TrainingSpec
from cost_models.strategy import Strategy
from cost_models.units import GIB
from planner.datasets.shapes import model_of, preset_of
from planner.datasets.unusable import Unusable
from planner.errors import DatasetUnreadable
from planner.measurement import Measurement

Row = Mapping[str, str]
PHASES: Final = {
    "total": "peak_total_gb",
    "forward": "peak_fwd_gb",
    "backward": "peak_fwdbwd_gb",
    "step": "peak_step_gb",
}
"""Quantities of a row and their columns."""
_BACKWARD: Final = ("loss", "backward_last_layer", "backward_first_layer", "end_of_backward")


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One row: what was predicted and what the tracker saw, by phase. [bytes]"""

    row: Row
    model: ModelSpec
    predicted: Mapping[str, float]
    tracked: Mapping[str, float]

    def error(self, phase: str = "total") -> float:
        """Relative error of a phase."""
        return self.predicted[phase] / self.tracked[phase] - 1


def read(path: Path) -> list[Row]:
    """The rows of a file.

    Raises:
        DatasetUnreadable: the file is no tracker file, or holds no row.
    """
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file, restval="")
        if PHASES["total"] not in (reader.fieldnames or ()):
            raise DatasetUnreadable(f"--tracker {path}: has no column {PHASES['total']}, so it is no tracker file")
        rows: list[Row] = list(reader)
    if not rows:
        raise DatasetUnreadable(f"--tracker {path}: holds a header, but no row")
    return rows


_KNOWN: Final[Mapping[str, str]] = {
    "precision": r"bf16-pure|fp32|fp32-autocast-bf16|fsdp-mp(?:\(.*\))?",
    "optimizer": "adamw-(?:fused|foreach|loop|fp32master)",
    "sharding(world)": r"1|fsdp2:[1-9]\d*(?::no_reshard)?",
    "recompute": "none|full",
    "padded": "[01]?",
    "four_bit": "[01]?",
    "chunks": r"(?:[1-9]\d*)?",
}
"""What the columns that choose the ledger's facts may hold (benchmarks/tracker/rows.py), as patterns."""


def check(row: Row) -> None:
    """Whether a row says what ran in words that are known, and what the tracker saw.

    Raises:
        Unusable: it does not.
    """
    for column, pattern in _KNOWN.items():
        cell = row.get(column)
        if cell is not None and not re.fullmatch(pattern, cell):
            raise Unusable(f"{column} not known: {cell[:40] or 'empty'}")
    for column in PHASES.values():
        cell = row.get(column) or "0"
        if not 0 <= float(cell) < math.inf:
            raise Unusable(f"{column} is no size: {cell[:40]}")
    if not float(row.get(PHASES["total"]) or 0):
        raise Unusable(f"{PHASES['total']} is empty or zero")


def model(row: Row) -> ModelSpec:
    """The model of a row: its preset with the row's sizes.

    Raises:
        Unusable: no preset has that name, the row names no family, and its numbers do not make its parameters.
    """
    name = row["model"].partition("+")[0]
    overrides = json.loads(row.get("overrides") or "{}")
    if name.startswith("family:") or overrides:
        return _configured(name, row, overrides)
    found = preset_of(name)
    if found is None:
        return _from_numbers(name, row)
    layers = int(row["layers"])
    update: dict[str, Any] = {
        "num_hidden_layers": layers,
        "layers": found.layers[:layers],
        "vocab_size": int(row["vocab"]),
    }
    if "padded" not in row:
        # The common header: no layer is given a mask, so that a window is none.
        update["layers"] = tuple(kind.model_copy(update={"attention": "full"}) for kind in update["layers"])
    found = found.model_copy(update=update)
    missing = int(row["params"]) - total_parameters(found)
    if found.position_embedding == "learned" and missing and missing % found.hidden_size == 0:
        rows = found.position_embedding_rows + missing // found.hidden_size
        found = found.model_copy(update={"position_embedding_rows": rows})
    return found


def _from_numbers(name: str, row: Row) -> ModelSpec:
    """The generic ledger of a model that no preset has, from the row's own numbers, which must make its parameters."""
    sizes = {
        "layers": "layers", "hidden": "hidden", "heads": "heads", "kv_heads": "kv_heads", "ffn_hidden": "ffn",
        "vocab": "vocab",
    }  # fmt: skip
    stated = Measurement(model=name, **{key: int(row[column]) for key, column in sizes.items()})
    for tied in ("no", "yes"):
        found, _ = model_of(stated.model_copy(update={"facts": {"tied": tied}}))
        if total_parameters(found) == int(row["params"]):
            return found
    raise Unusable(f"unknown model {name}: its sizes do not make its {row['params']} parameters")


def _configured(name: str, row: Row, overrides: Mapping[str, Any]) -> ModelSpec:
    from cost_models.hf_config import presets

    if name.startswith("family:"):
        keys = json.loads(row["config"])
    else:
        keys = dict(presets.presets()[presets.model(name).name].config)
    return read_config({**keys, **overrides}, name=name)


def facts(row: Row) -> tuple[str, FrameworkFacts]:
    """The back end of a row, with the row's layout and optimizer loop."""
    pure = catalog.framework("ddp-pure-bf16")
    precision, optimizer = row["precision"], row["optimizer"]
    backend, base = "ddp", pure
    if row["sharding(world)"] != "1":
        backend, sharded = "fsdp", catalog.framework("fsdp")
        base = sharded.model_copy(update={"layouts": pure.layouts}) if precision == "bf16-pure" else sharded
    elif precision.startswith("fp32-autocast"):
        base = catalog.framework("ddp")
    layout = base.layouts["bf16"]
    changes: dict[str, dict[str, Any]] = {
        "adamw-foreach": {"step_parameter_copies": 1.0},
        "adamw-loop": {"step_largest_tensor_bytes": 2 * layout.weight},
        "adamw-fp32master": {
            "layouts": {"bf16": layout.model_copy(update={"master": 4.0, "state": 4.0})},
            "step_largest_tensor_bytes": 8.0,
        },
    }
    chunks = int(row.get("chunks") or 1)
    loss = base.cross_entropy["eager"].model_copy(update={"chunks": chunks})
    update = {"cross_entropy": {**base.cross_entropy, "eager": loss}, **changes.get(optimizer, {})}
    update["gloo_scatter_copies"] = 0.0  # the rows' process group is a fake one, as on a GPU nothing is copied
    return backend, base.model_copy(update=update)


def ledger(row: Row) -> MemoryLedger:
    """The ledger of a row's step."""
    job, configuration, framework = _asked(row)
    changed: dict[str, FrameworkFacts] = {configuration.backend.name: framework}
    return memory_ledger(job, configuration, catalog.calibration(), oom_risk=0.5, frameworks=changed)


def _asked(row: Row) -> tuple[Job, Configuration, FrameworkFacts]:
    """A row's job and configuration, and the facts of its back end."""
    spec = model(row)
    adapters = row["model"].partition("+")[2]
    sharding = row["sharding(world)"].split(":")
    world = int(sharding[1]) if len(sharding) > 1 else 1
    backend, framework = facts(row)
    layers = spec.num_hidden_layers
    job = Job(
        model=spec,
        cluster=ClusterSpec(pools=(pool(device="cpu", gpus_per_node=world, host_memory="100TiB"),)),
        training=TrainingSpec(
            sequence_length=int(row["seq"]),
            global_batch_size=int(row["mbs"]) * world,
            method=("qlora" if row.get("four_bit") == "1" else "lora") if adapters else "full",
            lora=_adapters(row) if adapters else None,
            padded=row.get("padded") == "1",
        ),
    )
    configuration = Configuration.read(
        {
            "backend": {"name": backend},
            "data_parallel": world,
            "zero_stage": (2 if "no_reshard" in sharding else 3) if world > 1 else 0,
            "micro_batch_size": int(row["mbs"]),
            "stages": [{"layers": layers, "recompute": {row["recompute"]: layers}}],
            "attention": row["attn"],
            "precision": "fp32" if row["precision"] == "fp32" else "bf16",
        }
    )
    return job, configuration, framework


def _adapters(row: Row) -> LoraSpec:
    text = row["model"].partition("+")[2]
    rank = row.get("rank") or "".join(c for c in text.partition("lora")[2].partition("-")[0] if c.isdigit()) or "16"
    targets: Any = row.get("lora") or "all-linear"
    names = targets if targets == "all-linear" else tuple(targets.split("+"))
    return LoraSpec(rank=int(rank), target_modules=names, double_quantization=False)


def compare(row: Row) -> Compared:
    """One row, predicted and tracked.

    Raises:
        Unusable: the row cannot be read.
    """
    check(row)
    (stage,) = ledger(row).stages
    step = stage.allocated("optimizer_step") + _held_leaf(row)
    backward = max(stage.allocated(instant) for instant in _BACKWARD)
    predicted = {"total": max(step, backward), "forward": _forward(row, stage), "backward": backward, "step": step}
    stated = {phase: row.get(column) or "0" for phase, column in PHASES.items()}
    tracked = {phase: float(text) * GIB for phase, text in stated.items() if float(text)}
    return Compared(row=row, model=model(row), predicted=predicted, tracked=tracked)


def _held_leaf(row: Row) -> float:
    """The embedding's output and its gradient, which the graph of a recomputed model with adapters holds as a leaf.

    Source: transformers `enable_input_require_grads`; the leaf is freed with the graph's nodes, after the step.
    """
    if "+" not in row["model"] or row["recompute"] != "full":
        return 0.0
    size = 4.0 if row.get("four_bit") == "1" else 2.0
    return 2.0 * size * int(row["hidden"]) * int(row["mbs"]) * int(row["seq"])


def _forward(row: Row, stage: StageMemory) -> float:
    """The end of forward, which is the loss instant with the logits' copies of forward instead of backward's, or the
    fullest moment of the last layer's forward.

    The final norm's output is alive where the head does not keep it, and so are autocast's cached casts of recomputed
    layers.
    """
    loss, spec = facts(row)[1].cross_entropy["eager"], model(row)
    autocast, adapters = row["precision"].startswith("fp32-autocast"), "+" in row["model"]
    wide = row["precision"] == "fp32" or row.get("four_bit") == "1"
    tokens = int(row["mbs"]) * int(row["seq"])
    # Logits in fp32 are their own fp32 copy.
    # A chunk's 16-bit logits are gone before its log-softmax, as nothing is kept.
    each = (8.0 if wide or loss.chunks > 1 else loss.forward) + ((4.0 if wide else 2.0) if spec.logit_softcap else 0.0)
    logits = each * spec.vocab_size * tokens / loss.chunks
    output = 4.0 if autocast or (wide and adapters) else 2.0 if adapters else 0.0
    casts = 2.0 * _layer_total(spec) if autocast and row["recompute"] == "full" else 0.0
    terms = stage.instants["loss"]
    rest = stage.allocated("loss") - terms.get("logits", 0.0)
    layer = rest - terms.get("head_activations", 0.0) + _layer_forward(row) * tokens
    return max(rest + logits + output * spec.hidden_size * tokens, layer) + casts


def _layer_forward(row: Row) -> float:
    """What the last layer's forward holds at most, in excess of what it keeps; expert tensors that a recomputed layer
    expands for their adapters are left out. [bytes per token]
    """
    job, configuration, frameworks = _asked(row)
    backend = configuration.backend.name
    facts_of_all = facts_of(job.training, {backend: frameworks})
    setting = Setting(job=job, strategy=Strategy.of(configuration), frameworks=facts_of_all)
    return float(forward_bytes(setting, job.model.layer_sequence[-1], keeps=row["recompute"] != "full"))


def _layer_total(spec: ModelSpec) -> float:
    """Parameters of all layers."""
    by_kind = dict(zip(spec.layer_kinds, layer_parameters(spec), strict=True))
    return float(sum(by_kind[kind] for kind in spec.layer_sequence))


def compared(
    rows: Sequence[Row], progress: Callable[[int, int], None] | None = None
) -> tuple[list[Compared], dict[str, int]]:
    """All rows that can be predicted, and why others are skipped."""
    found, skipped = [], dict[str, int]()
    for done, row in enumerate(rows, start=1):
        if progress is not None:
            progress(done, len(rows))
        try:
            found.append(compare(row))
        except (MeshwrightError, Unusable, ArithmeticError, LookupError, ValueError) as error:
            text = str(error).partition(chr(10))[0]
            reason = text if isinstance(error, Unusable) else f"{type(error).__name__}: {text}"
            skipped[reason] = skipped.get(reason, 0) + 1
    return found, skipped
