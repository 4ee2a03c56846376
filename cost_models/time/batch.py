"""Step times of many whole configurations of one job in one pass: what a fit and a validation need."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np

from cost_models import schedule
from cost_models.arrays import FloatArray
from cost_models.calibration import Calibration
from cost_models.job import Job
from cost_models.specs.configuration import Configuration
from cost_models.strategy import Strategy
from cost_models.time.frame import Frame
from cost_models.time.layer import layer_work
from cost_models.time.layout import stage_layers
from cost_models.time.stage import fixed_work, layer_offload, layer_tail, stage_tail, stage_work
from cost_models.time.work import Work


def step_seconds(job: Job, configurations: Sequence[Configuration], calibration: Calibration) -> FloatArray:
    """Seconds of one step of every configuration: the `step_seconds` of their ledgers, without the names. [s]

    A calibration whose factors are arrays of shape (p, 1) prices p variants of itself at once; the result then has
    shape (p, n) instead of (n,).

    Raises:
        MissingCalibration: a term has no constant for this device or framework.
        BrokenRule: a precision that the device cannot compute in, or layers that do not add up.
    """
    rows = [Strategy.of(configuration) for configuration in configurations]
    columns = {f.name: np.array([getattr(row, f.name) for row in rows]) for f in fields(Strategy)}
    pass_ = _Pass(Frame(job=job, strategy=Strategy(**columns), calibration=calibration))
    steps = [pass_.step(row, configuration) for row, configuration in enumerate(configurations)]
    return np.stack(steps, axis=-1)


class _Pass:
    """One evaluation of the formulas over all rows, each term on first use."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.known: dict[Any, Any] = {}

    def column(self, row: int, key: Any, work: Callable[[], Work]) -> Any:
        """Seconds of a term in one row, shape () or (p,)."""
        if key not in self.known:
            seconds = work().seconds
            full = np.broadcast_shapes(np.shape(seconds), (len(self.frame.strategy),))
            self.known[key] = np.broadcast_to(seconds, full)
        return self.known[key][..., row]

    def step(self, row: int, configuration: Configuration) -> Any:
        """Seconds of the row: equal stages are priced once."""
        frame, p = self.frame, configuration.pipeline_parallel
        stages: Counter[Any] = Counter()
        for s, layers in enumerate(stage_layers(frame.model, configuration)):
            offloaded = Counter(kind for kind, _ in layers[: configuration.stages[s].optimizer_layers_offloaded])
            held = tuple(Counter(layers).items())
            stages[schedule.stage_class(s, p), held, tuple(offloaded.items())] += 1
        busy = {stage: self._busy(row, *stage[:2]) for stage in stages}
        tails = [self._tail(row, *stage) for stage in stages]
        slowest, longest = (_largest(values) for values in (list(busy.values()), tails))
        return schedule.step_seconds(
            slowest,
            sum(count * busy[stage] for stage, count in stages.items()),
            longest,
            self.column(row, "fixed", lambda: fixed_work(frame)),
            micro_batches=configuration.gradient_accumulation_steps,
            virtual=configuration.virtual_pipeline_stages,
        )

    def _busy(self, row: int, which: int, held: Any) -> Any:
        frame = self.frame
        total = self.column(row, ("stage", which), lambda: stage_work(frame, which))
        for (kind, mode), count in held:
            work = partial(layer_work, frame, kind, mode)
            total = total + count * self.column(row, (kind, mode), work)
        return total

    def _tail(self, row: int, which: int, held: Any, offloaded: Any) -> Any:
        frame = self.frame
        total = self.column(row, ("tail", which), lambda: stage_tail(frame, which))
        for (kind, _), count in held:
            total = total + count * self.column(row, ("tail", kind), partial(layer_tail, frame, kind))
        for kind, count in offloaded:
            total = total + count * self.column(row, ("offload", kind), partial(layer_offload, frame, kind))
        return total


def _largest(values: list[Any]) -> Any:
    result = values[0]
    for value in values[1:]:
        result = np.maximum(result, value)
    return result
