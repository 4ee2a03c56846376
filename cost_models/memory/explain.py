"""The memory side of the ledger: the terms of `instants`, times one configuration's layer counts, with their names."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from cost_models.calibration import Calibration
from cost_models.job import Job
from cost_models.ledger import MemoryLedger, StageMemory
from cost_models.memory.allocator import margin
from cost_models.memory.hosting import (
    host_layer_bytes,
    host_rank_bytes,
    host_usable_bytes,
    load_node_bytes,
    node_bytes,
)
from cost_models.memory.instants import (
    INSTANTS,
    activation_terms,
    constant_terms,
    layer_terms,
    offload_terms,
    stage_activation_terms,
    working_terms,
)
from cost_models.memory.options import facts_of
from cost_models.memory.overheads import communicator_bytes, context_bytes
from cost_models.memory.pieces import Pieces
from cost_models.memory.pricing import usable_bytes
from cost_models.memory.setting import Setting, Terms, merged, once, scaled
from cost_models.placement import Placement, in_pool, placement_of, pools_used, stage_jobs
from cost_models.schedule import stage_class, stage_in_flight
from cost_models.specs.choices import RECOMPUTES, Recompute
from cost_models.specs.configuration import Configuration
from cost_models.specs.framework import FrameworkFacts
from cost_models.specs.model import LayerKind
from cost_models.strategy import Strategy
from cost_models.time.layout import counted, stage_layers


def memory_ledger(
    job: Job,
    configuration: Configuration,
    calibration: Calibration,
    *,
    oom_risk: float,
    frameworks: Mapping[str, FrameworkFacts] | None = None,
) -> MemoryLedger:
    """What every byte of every stage is for, at every instant.

    `frameworks` replaces the catalogue's facts of the back ends it names.

    Raises:
        MissingCalibration: a term has no constant for this device.
        BrokenRule: oom_risk is no probability, or the stages' layers do not add up to the model's.
    """
    placement = placement_of(configuration)
    stage_jobs(job, placement)  # refuses stages in no pool
    layers = stage_layers(job.model, configuration)
    facts, strategy = facts_of(job.training, frameworks), Strategy.of(configuration)
    priced: dict[int, Pieces] = {}
    for pool in pools_used(placement):
        setting = Setting(job=in_pool(job, pool), strategy=strategy, frameworks=facts)
        priced[pool] = Pieces(setting=setting, calibration=calibration)
    stages = tuple(_stage(priced[placement[s]], configuration, s, held) for s, held in enumerate(layers))
    found = [_of_pool(pieces, stages, _places(placement, pool), oom_risk) for pool, pieces in priced.items()]
    fullest = max(found, key=lambda ledger: ledger.fullness)
    return replace(fullest, other_pools=tuple(ledger for ledger in found if ledger is not fullest))


def _places(placement: Placement, pool: int) -> tuple[int, ...]:
    """Stages of a pool; empty where it holds all of them."""
    places = tuple(s for s, at in enumerate(placement) if at == pool)
    return () if len(places) == len(placement) else places


def _of_pool(pieces: Pieces, stages: tuple[StageMemory, ...], places: tuple[int, ...], oom_risk: float) -> MemoryLedger:
    """The ledger of one pool's devices and nodes, with every stage beside for reference."""
    setting, calibration = pieces.setting, pieces.calibration
    factors = margin(setting, calibration, oom_risk)
    here = [stages[s] for s in places] or stages
    return MemoryLedger(
        stages=stages,
        of_stages=places,
        phase_of={instant.name: instant.phase for instant in INSTANTS},
        context_bytes=float(context_bytes(setting, calibration)),
        communicator_bytes=float(communicator_bytes(setting, calibration)),
        allocated_quantile=float(factors.allocated_quantile),
        allocated_median=float(factors.allocated_median),
        allocated_lower=float(factors.allocated_lower),
        fragmentation_median=float(factors.fragmentation_median),
        fragmentation_quantile=float(factors.fragmentation_quantile),
        usable_bytes=usable_bytes(setting),
        host_usable_bytes=float(host_usable_bytes(pieces, calibration)),
        host_node_bytes=max(
            node_bytes(setting, [stage.host_bytes for stage in here]), float(load_node_bytes(pieces, calibration))
        ),
    )


def _stage(
    pieces: Pieces, configuration: Configuration, index: int, layers: list[tuple[LayerKind, Recompute]]
) -> StageMemory:
    setting, p = pieces.setting, configuration.pipeline_parallel
    chunks, micro_batches = configuration.virtual_pipeline_stages, configuration.gradient_accumulation_steps
    counts = tuple(stage.layers for stage in configuration.stages)
    held = stage_in_flight(counts, index, chunks, micro_batches) + _early_forward(setting, configuration)
    offloaded = configuration.stages[index].optimizer_layers_offloaded
    parts = _parts(pieces, stage_class(index, p), _counted(layers), _counted(kind for kind, _ in layers[:offloaded]))
    instants: dict[str, dict[str, float]] = {}
    for instant, (before, after) in zip(INSTANTS, parts.instants, strict=True):
        flight = max(held - instant.released / chunks, 0.0) if instant.holds_activations else 0.0
        terms = merged(before, scaled(parts.activations, flight), *after)
        instants[instant.name] = {name: value for name, value in settled(terms).items() if value != 0.0}
    return StageMemory(stage=index, instants=instants, host_bytes=parts.host_bytes)


_SAVED: Final = (
    "activations",
    "attention_activations",
    "recompute_working_set",
    "attention_mask",
    "recompute_boundary",
)
"""What forward saves for backward, which frees it as it goes."""


def settled(terms: Mapping[str, float]) -> dict[str, float]:
    """The same sum without a negative term. [bytes]

    A term of backward counts from what forward saved, so it is negative where more of that is gone than was added. What
    is gone is taken from what was saved, then from the largest of the rest.
    """
    found = dict(terms)
    missing = -sum(value for value in found.values() if value < 0.0)
    if missing == 0.0:
        return found
    found = {name: max(value, 0.0) for name, value in found.items()}
    for name in (*_SAVED, *sorted(found, key=lambda each: -found[each])):
        taken = min(missing, found.get(name, 0.0))
        if taken > 0.0:
            found[name], missing = found[name] - taken, missing - taken
    return found


Counts = tuple[tuple[Any, int], ...]


def _counted(layers: Iterable[Any]) -> Counts:
    return tuple(counted(layers).items())


@dataclass(frozen=True, slots=True)
class _Parts:
    """What stages of the same class and layers share: all but the micro-batches in flight."""

    instants: tuple[tuple[Terms, tuple[Terms, Terms]], ...]
    """By instant: what comes before the activations in its list of terms, and what after."""
    activations: Terms
    """Of one micro-batch."""
    host_bytes: float


@once
def _parts(pieces: Pieces, which: int, layers: Counts, offloaded: Counts) -> _Parts:
    setting = pieces.setting
    position = {kind: index for index, kind in enumerate(setting.kinds)}
    alike: Counter[int] = Counter()
    activations = stage_activation_terms(pieces, which)
    modes = []
    for (kind, name), n in layers:
        at, mode = position[kind], RECOMPUTES.index(name)
        alike[at] += n
        modes.append(mode)
        activations = merged(activations, scaled(activation_terms(pieces, at, mode), n))
    moved = [(position[kind], n) for kind, n in offloaded]
    saved = _plain(scaled(merged(*(scaled(offload_terms(pieces, kind), n) for kind, n in moved)), -1.0))
    instants = []
    for i, instant in enumerate(INSTANTS):
        resident = merged(
            constant_terms(pieces, which, i), *(scaled(layer_terms(pieces, kind, i), n) for kind, n in alike.items())
        )
        working = working_terms(pieces, which, i, max(modes) if instant.selector else min(modes))
        instants.append((_plain(resident), (_plain(working), saved)))
    host = host_rank_bytes(pieces, pieces.calibration)
    host = host + sum((n * host_layer_bytes(pieces, kind, pieces.calibration) for kind, n in moved), 0.0)
    return _Parts(tuple(instants), _plain(activations), float(host))


def _early_forward(setting: Setting, configuration: Configuration) -> float:
    """Micro-batches whose forward an interleaved pipeline starts ahead of its schedule, as a share of a stage.

    Source: Megatron-LM `core/pipeline_parallel/schedules.py`, overlap_p2p_communication_warmup_flush.
    """
    chunks = float(setting.fact("early_forward_chunks"))
    return chunks / configuration.virtual_pipeline_stages if configuration.virtual_pipeline_stages > 1 else 0.0


def _plain(terms: Terms) -> Terms:
    return {name: float(value) for name, value in terms.items()}
