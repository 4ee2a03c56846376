"""The memory side of the ledger: the terms of `instants`, times one configuration's layer counts, with their names."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from cost_models.calibration import Calibration
from cost_models.job import Job
from cost_models.ledger import MemoryLedger, StageMemory
from cost_models.memory.allocator import margin
from cost_models.memory.hosting import host_layer_bytes, host_rank_bytes, host_usable_bytes, node_bytes
from cost_models.memory.instants import (
    INSTANTS,
    Pieces,
    activation_terms,
    constant_terms,
    layer_terms,
    stage_activation_terms,
    working_terms,
)
from cost_models.memory.overheads import communicator_bytes, context_bytes
from cost_models.memory.pricing import usable_bytes
from cost_models.memory.setting import Setting, Terms, catalogued, merged, scaled
from cost_models.schedule import in_flight, stage_class
from cost_models.specs.configuration import Configuration, Stage
from cost_models.specs.framework import FrameworkFacts
from cost_models.strategy import Strategy


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
        BrokenRule: oom_risk is no probability.
    """
    strategy = Strategy.of(configuration)
    setting = Setting(job=job, strategy=strategy, frameworks=catalogued(frameworks))
    pieces = Pieces(setting=setting, calibration=calibration)
    stages: list[StageMemory] = []
    first_layer = 0
    for index, stage in enumerate(configuration.stages):
        stages.append(_stage(pieces, configuration, index, stage, first_layer))
        first_layer += stage.layers
    factors = margin(setting, calibration, oom_risk)
    return MemoryLedger(
        stages=tuple(stages),
        phase_of={instant.name: instant.phase for instant in INSTANTS},
        context_bytes=float(context_bytes(setting, calibration)),
        communicator_bytes=float(communicator_bytes(setting, calibration)),
        allocated_quantile=float(factors.allocated_quantile),
        fragmentation_median=float(factors.fragmentation_median),
        fragmentation_quantile=float(factors.fragmentation_quantile),
        usable_bytes=usable_bytes(setting),
        host_usable_bytes=float(host_usable_bytes(pieces, calibration)),
        host_node_bytes=node_bytes(setting, [stage.host_bytes for stage in stages]),
    )


def recompute_modes(stage: Stage) -> list[int]:
    """The recompute mode of each layer of a stage in order: the most recomputed come first."""
    counts = stage.recompute
    return [2] * counts.full + [1] * counts.selective + [0] * counts.none


def offloaded_layers(stage: Stage) -> list[bool]:
    """Whether each layer of a stage keeps its optimizer states on the host: the first ones do."""
    return [index < stage.optimizer_layers_offloaded for index in range(stage.layers)]


def _stage(pieces: Pieces, configuration: Configuration, index: int, stage: Stage, first_layer: int) -> StageMemory:
    setting = pieces.setting
    kinds = [
        setting.kinds.index(kind) for kind in setting.model.layer_sequence[first_layer : first_layer + stage.layers]
    ]
    modes, offloaded = recompute_modes(stage), offloaded_layers(stage)
    which = stage_class(index, configuration.pipeline_parallel)
    held = in_flight(
        index,
        configuration.pipeline_parallel,
        configuration.virtual_pipeline_stages,
        configuration.gradient_accumulation_steps,
    )
    one = merged(
        stage_activation_terms(pieces, which),
        *(activation_terms(pieces, kind, mode) for kind, mode in zip(kinds, modes, strict=True)),
    )
    saving: Any = sum(
        (pieces.layer_states[kind].optimizer_total for kind, off in zip(kinds, offloaded, strict=True) if off), 0.0
    )
    instants: dict[str, dict[str, float]] = {}
    for i, instant in enumerate(INSTANTS):
        released = instant.released / configuration.virtual_pipeline_stages
        flight = np.maximum(held - released, 0.0) if instant.holds_activations else 0.0
        mode = max(modes) if instant.selector else min(modes)
        terms = merged(
            constant_terms(pieces, which, i),
            *(layer_terms(pieces, kind, i) for kind in kinds),
            scaled(one, flight),
            working_terms(pieces, which, i, mode),
            {"optimizer_states": -saving},
        )
        instants[instant.name] = _plain(terms)
    host = host_rank_bytes(pieces, pieces.calibration) + sum(
        (host_layer_bytes(pieces, kind, pieces.calibration) for kind, off in zip(kinds, offloaded, strict=True) if off),
        0.0,
    )
    return StageMemory(stage=index, instants=instants, host_bytes=float(host))


def _plain(terms: Terms) -> dict[str, float]:
    return {name: float(value) for name, value in terms.items() if float(value) != 0.0}
