"""Legality: what each back end can run, as data. One YAML file per back end, and `common.yaml` for arithmetic.

docs/adding-a-backend.md describes the format.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

import numpy as np

from cost_models.catalog import read_yaml
from cost_models.job import Job
from cost_models.specs.choices import Backend
from solver.domains import CHOICES, FLAGS
from solver.errors import BadLegality
from solver.rules import Expression

RECOMPUTE_LAYOUTS: Final = ("one_mode", "same_count", "free")
"""one_mode: every layer of the model alike; same_count: the same number of fully recomputed layers in every stage, or
all layers selective, or none; free: any counts in any stage."""
OFFLOAD_LAYOUTS: Final = ("all_or_none", "same_count", "free")
"""all_or_none: every layer's optimizer states or none; same_count: equally many in every stage; free: any numbers."""
LAYER_LAYOUTS: Final = ("even", "free", "spread")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule of a back end."""

    id: str
    require: Expression
    message: str
    """With both sides of the rule, columns and facts in braces."""
    reason: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What a back end can lay out in the rows where `when` holds."""

    when: Expression
    layers: str
    recompute: str
    mixed: bool
    """Whether one stage may hold selectively and fully recomputed layers at once."""
    offload: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Legality:
    """The rules of one back end."""

    backend: Backend
    release_range: str
    source: str
    rules: tuple[Rule, ...]
    layouts: tuple[Layout, ...]
    """The first whose `when` holds applies."""

    searched: tuple[Rule, ...]
    """The rules of rows that are searched: where stages can only be equal, they divide the layers."""


def _equal_stages(layouts: tuple[Layout, ...], source: str) -> tuple[Rule, ...]:
    """What layouts with even layers ask of a row, as a rule; of one configuration `planner.legality` asks less."""
    even = [_first_at(layouts, k) for k, layout in enumerate(layouts) if layout.layers == "even"]
    if not even:
        return ()
    free = "" if len(even) == len(layouts) else f" or not ({' or '.join(even)})"
    return (
        Rule(
            id="equal-stages",
            require=Expression(f"num_hidden_layers % pipeline_parallel == 0{free}"),
            message="num_hidden_layers {num_hidden_layers} is no multiple of pipeline_parallel {pipeline_parallel}",
            reason="every stage holds equally many layers",
            source=source,
        ),
    )


def _first_at(layouts: tuple[Layout, ...], place: int) -> str:
    """When a layout is the first that holds, as an expression."""
    earlier = [f"not ({layout.when.text})" for layout in layouts[:place]]
    return " and ".join([f"({layouts[place].when.text})", *earlier])


def _read(name: str) -> dict[str, Any]:
    data: dict[str, Any] = read_yaml(files(__package__).joinpath(f"{name}.yaml"))
    return data


def _rules(name: str, entries: list[dict[str, str]]) -> tuple[Rule, ...]:
    fields = {"id", "require", "message", "reason", "source"}
    for entry in entries:
        if set(entry) != fields:
            raise BadLegality(
                f"{name}.yaml: rule {entry.get('id', '?')!r} has keys {sorted(entry)}, needs {sorted(fields)}"
            )
    return tuple(Rule(**{**entry, "require": Expression(entry["require"])}) for entry in entries)  # type: ignore[arg-type]


@cache
def legality(backend: Backend) -> Legality:
    """The rules of a back end, those common to all first.

    Raises:
        BadLegality: the file breaks its format.
    """
    data = _read(backend)
    layouts = tuple(Layout(**{**entry, "when": Expression(str(entry["when"]))}) for entry in data["layouts"])
    for layout in layouts:
        known = (
            layout.layers in LAYER_LAYOUTS
            and layout.recompute in RECOMPUTE_LAYOUTS
            and layout.offload in OFFLOAD_LAYOUTS
        )
        if not known:
            raise BadLegality(
                f"{backend}.yaml: layout {layout.layers}, {layout.recompute}, {layout.offload} is unknown"
            )
    rules = _rules("common", _read("common")["rules"]) + _rules(backend, data["rules"])
    return Legality(
        backend=backend,
        release_range=data["release_range"],
        source=data["source"],
        rules=rules,
        layouts=layouts,
        searched=rules + _equal_stages(layouts, data["source"]),
    )


def job_facts(job: Job, used: Sequence[int] | None = None) -> Mapping[str, Any]:
    """The facts of a job that rules may read, beside the columns of the rows.

    `used`: pools in use, all of the cluster unless stated; of several, what holds for each of them.
    """
    model, every = job.model, job.cluster.pools
    pools = every if used is None else tuple(every[pool] for pool in used)
    devices = [pool.device for pool in pools]
    vendors = {device.vendor for device in devices}
    return {
        "num_attention_heads": model.num_attention_heads,
        "num_key_value_heads": model.num_key_value_heads,
        "num_hidden_layers": model.num_hidden_layers,
        "hidden_size": model.hidden_size,
        "intermediate_size": model.intermediate_size,
        "vocab_size": model.vocab_size,
        "num_experts": 1 if model.moe is None else model.moe.num_experts,
        "layer_kind_count": len(model.layer_kinds),
        "tie_word_embeddings": model.tie_word_embeddings,
        "parallel_residual": model.parallel_residual,
        "position_embedding": model.position_embedding,
        "embedding_norm": model.embedding_norm,
        "embedding_projection": model.embedding_projection is not None,
        "head_bias": model.head_bias,
        "norms_per_layer": model.norms_per_layer,
        "norm_affine": model.norm_affine,
        "qk_norm": model.qk_norm,
        "softcap": model.attention_softcap or model.logit_softcap,
        "sequence_length": job.training.sequence_length,
        "method": job.training.method,
        "optimizer": job.training.optimizer,
        "optimizer_in_backward": job.training.optimizer_in_backward,
        "gpus_per_node": min(pool.gpus_per_node for pool in pools),
        "link_domain": min(pool.link_domain for pool in pools),
        "device_kind": "cpu" if any(device.kind == "cpu" for device in devices) else "gpu",
        "device_vendor": vendors.pop() if len(vendors) == 1 else "mixed",
        "has_bf16": all("bf16" in device.peak_flops for device in devices),
        "has_fp8": all(device.multiplies("fp8") for device in devices),
        "has_nvfp4": all(device.multiplies("nvfp4") for device in devices),
    }


def layout_codes(backend: Backend, facts: Mapping[str, Any], rows: int) -> dict[str, Any]:
    """Layout abilities of rows as columns: `even`, `spread`, `mixed` (bool), `recompute`, `offload` (indices above).

    Stages that are spread and divide the layers are even.

    Raises:
        BadLegality: no layout entry covers a row.
    """
    entries = legality(backend).layouts
    open_ = np.ones(rows, dtype=bool)
    out = {
        key: np.zeros(rows, dtype=kind)
        for key, kind in (("even", bool), ("spread", bool), ("mixed", bool), ("recompute", int), ("offload", int))
    }
    for entry in entries:
        hit = open_ & np.broadcast_to(np.asarray(entry.when(facts), dtype=bool), (rows,))
        out["even"][hit] = entry.layers == "even"
        out["spread"][hit] = entry.layers == "spread"
        out["mixed"][hit] = entry.mixed
        out["recompute"][hit] = RECOMPUTE_LAYOUTS.index(entry.recompute)
        out["offload"][hit] = OFFLOAD_LAYOUTS.index(entry.offload)
        open_ &= ~hit
    if open_.any():
        raise BadLegality(f"{backend}.yaml: no layout entry covers {int(open_.sum())} rows")
    divides = np.asarray(facts["num_hidden_layers"]) % np.asarray(facts["pipeline_parallel"]) == 0
    out["even"] |= out["spread"] & divides
    out["spread"] &= ~divides
    return out


def spelled(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of one row as a person reads them: choices by name, flags as true and false."""
    named = {
        k: CHOICES[k][int(v)] if k in CHOICES else str(bool(v)).lower() if k in FLAGS or isinstance(v, bool) else v
        for k, v in facts.items()
    }
    return {k: int(v) if isinstance(v, np.integer) else v for k, v in named.items()}


def broken_rules(backend: Backend, facts: Mapping[str, Any]) -> tuple[tuple[Rule, str], ...]:
    """The rules that one row breaks, each with its message."""
    words = spelled(facts)
    return tuple((r, r.message.format(**words)) for r in legality(backend).rules if not bool(r.require(facts)))
