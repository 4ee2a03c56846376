"""The ledger of one configuration: walked stage by stage with named terms, never read from the table."""

from collections import Counter
from typing import Any

import numpy as np

from cost_models import schedule
from cost_models.calibration import Calibration
from cost_models.job import Job
from cost_models.ledger import TimeLedger
from cost_models.placement import placement_of, stage_jobs
from cost_models.specs.choices import Recompute
from cost_models.specs.configuration import Configuration
from cost_models.specs.model import LayerKind
from cost_models.strategy import Strategy
from cost_models.time.flops import model_flops
from cost_models.time.frame import Frame
from cost_models.time.gemm import peak_flops
from cost_models.time.layer import layer_work
from cost_models.time.layout import counted, stage_layers
from cost_models.time.stage import fixed_work, layer_offload, layer_tail, stage_tail, stage_work
from cost_models.time.work import TERMS, Work


def time_ledger(job: Job, configuration: Configuration, calibration: Calibration) -> TimeLedger:
    """Seconds of one step by name.

    The slowest stage sets the pace: its work times the micro-batches is what the step waits for; the other stages'
    fill and drain is the bubble; the longest tail after the last micro-batch and the fixed overhead follow.

    Raises:
        MissingCalibration: a term has no constant for this device or framework.
        BrokenRule: a precision that the device cannot compute in, or layers that do not add up.
    """
    frames = _frames(job, configuration, calibration)
    stages, tails = _works(frames, configuration)
    seconds = [float(work.seconds) for work in stages]
    tail_seconds = [float(work.seconds) for work in tails]
    m, v = configuration.gradient_accumulation_steps, configuration.virtual_pipeline_stages
    slowest, longest = int(np.argmax(seconds)), int(np.argmax(tail_seconds))
    fixed = max((fixed_work(frame) for frame in frames), key=lambda work: float(work.seconds))
    step = schedule.step_seconds(
        seconds[slowest], sum(seconds), tail_seconds[longest], float(fixed.seconds), micro_batches=m, virtual=v
    )
    whole = stages[slowest] * m + tails[longest] + fixed
    exposed = {name: float(whole.exposed.get(name, 0.0)) for name in TERMS}
    exposed["pipeline_bubble"] = (sum(seconds) - seconds[slowest]) / v
    return TimeLedger(
        step_seconds=float(step),
        exposed=exposed,
        hidden={name: float(whole.hidden.get(name, 0.0)) for name in TERMS if name in whole.hidden},
        stage_seconds=tuple(seconds),
        model_flops=model_flops(job, configuration.global_batch_size),
        peak_flops=_peak(frames, configuration),
    )


def _peak(frames: list[Frame], configuration: Configuration) -> float:
    """Peak rate of the devices of all stages. [FLOP/s]"""
    ranks = configuration.world_size // configuration.pipeline_parallel
    return sum(peak_flops(frame, configuration.precision)[1] * ranks for frame in frames)


def _frames(job: Job, configuration: Configuration, calibration: Calibration) -> list[Frame]:
    """The frame of each stage; stages that see the same pool and network share theirs."""
    strategy, known, frames = Strategy.of(configuration), dict[int, Frame](), []
    for seen in stage_jobs(job, placement_of(configuration)):
        if id(seen) not in known:
            known[id(seen)] = Frame(job=seen, strategy=strategy, calibration=calibration)
        frames.append(known[id(seen)])
    return frames


def _works(frames: list[Frame], configuration: Configuration) -> tuple[list[Work], list[Work]]:
    """Work of a micro-batch and work after the last one, by stage; stages that are alike are priced once."""
    p = configuration.pipeline_parallel
    known: dict[Any, tuple[Work, Work]] = {}
    works = []
    for s, layers in enumerate(stage_layers(frames[0].model, configuration)):
        frame = frames[s]
        offloaded = configuration.stages[s].optimizer_layers_offloaded
        held, moved = counted(layers), counted(kind for kind, _ in layers[:offloaded])
        which = schedule.stage_class(s, p)
        key = (id(frame), which, tuple(held.items()), tuple(moved.items()))
        if key not in known:
            known[key] = _work(frame, which, held), _tail(frame, which, held, moved)
        works.append(known[key])
    return [work for work, _ in works], [tail for _, tail in works]


def _work(frame: Frame, stage_class: int, layers: dict[tuple[LayerKind, Recompute], int]) -> Work:
    work = stage_work(frame, stage_class)
    for (kind, mode), count in layers.items():
        work = work + layer_work(frame, kind, mode) * count
    return work


def _tail(
    frame: Frame, stage_class: int, layers: dict[tuple[LayerKind, Recompute], int], offloaded: dict[LayerKind, int]
) -> Work:
    kinds: Counter[LayerKind] = Counter()
    for (kind, _), count in layers.items():
        kinds[kind] += count
    work = stage_tail(frame, stage_class)
    for kind, count in kinds.items():
        work = work + layer_tail(frame, kind) * count
    for kind, count in offloaded.items():
        work = work + layer_offload(frame, kind) * count
    return work
