"""Runs of a site's plans: what was run, what came of it, and what a calibration foretells of it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from cost_models.calibration import Calibration
from cost_models.errors import BrokenRule, MissingCalibration, SpecError
from cost_models.job import Job
from cost_models.ledger import MemoryLedger
from cost_models.memory import memory_ledger
from cost_models.placement import pool_jobs
from cost_models.specs.base import Spec
from cost_models.specs.configuration import Configuration
from cost_models.time import time_ledger
from planner.identity import digest
from planner.question import Question
from planner.uncertainty import memory_interval, stack_of, step_interval

LEVEL: Final = "90"
"""Of the intervals that runs are held against."""
RISK: Final = 0.01
Stack = tuple[str, str]
"""Framework, with or without adapters, and device family."""
Quantity = Literal["step_seconds", "peak_allocated_bytes"]
QUANTITIES: Final[tuple[Quantity, ...]] = ("step_seconds", "peak_allocated_bytes")


class SiteRun(Spec):
    """One run as it was reported. What was not measured is None."""

    ref: str
    at: datetime
    outcome: Literal["ok", "oom", "failed"]
    step_seconds: PositiveFloat | None = None
    peak_allocated_bytes: PositiveInt | None = None
    requested_bytes: NonNegativeInt | None = None
    """Size of the request that memory ran out at."""


class RunPlan(Spec):
    """A plan with its runs."""

    question: Question
    configuration: Configuration
    runs: tuple[SiteRun, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Foretold:
    """One configuration as a calibration prices it."""

    job: Job
    configuration: Configuration
    same: str
    """Equal of plans that run the same job in the same way."""
    stack: Stack
    values: dict[Quantity, float]
    intervals: dict[Quantity, tuple[float, float]]
    """At `LEVEL`; a quantity is missing where the calibration states no spread."""
    least_seconds: float
    """The model's own arithmetic at the peak of the devices."""
    memory: MemoryLedger


@dataclass(frozen=True, slots=True)
class Seen:
    """A run beside what was foretold of it."""

    run: SiteRun
    foretold: Foretold

    def ratio(self, quantity: Quantity) -> float | None:
        """Measured over predicted, where it ran and was measured."""
        measured: float | None = getattr(self.run, quantity)
        return None if measured is None or self.run.outcome != "ok" else measured / self.foretold.values[quantity]


class SetAside(Spec):
    """A run, or one figure of it, that no constant follows."""

    ref: str
    quantity: str
    why: str


def foretold(question: Question, configuration: Configuration, calibration: Calibration) -> Foretold:
    """Both ledgers of a configuration with their intervals.

    Raises:
        BrokenRule: its stages live in several pools, so that no device answers for the figures.
        MissingCalibration: a term has no constant.
    """
    jobs = pool_jobs(question.job, configuration)
    if len(jobs) > 1:
        raise BrokenRule("its stages live in several pools")
    job = jobs[0]
    here = {"stages": tuple(stage.model_copy(update={"pool": 0}) for stage in configuration.stages)}
    configuration = configuration.model_copy(update=here)
    time = time_ledger(job, configuration, calibration)
    memory = memory_ledger(job, configuration, calibration, oom_risk=RISK)
    allocated = memory.allocated_bytes * memory.allocated_median
    intervals: dict[Quantity, tuple[float, float]] = {
        "step_seconds": step_interval(job, configuration, calibration, time.step_seconds)[LEVEL]
    }
    around = memory_interval(job, configuration, calibration, "allocated", [allocated])
    if around:
        intervals["peak_allocated_bytes"] = around[LEVEL]
    return Foretold(
        job=job,
        configuration=configuration,
        same=digest([part.model_dump(mode="json") for part in (job.model, job.cluster, job.training, configuration)]),
        stack=stack_of(job, configuration),
        values={"step_seconds": time.step_seconds, "peak_allocated_bytes": allocated},
        intervals=intervals,
        least_seconds=time.model_flops / time.peak_flops,
        memory=memory,
    )


def seen(plans: Iterable[RunPlan], calibration: Calibration) -> tuple[list[Seen], list[SetAside]]:
    """Every run beside its prediction, oldest first; and those that cannot be predicted."""
    found, aside = [], []
    for plan in plans:
        try:
            said = foretold(plan.question, plan.configuration, calibration)
        except (MissingCalibration, SpecError) as error:
            aside += [SetAside(ref=run.ref, quantity="all", why=str(error)) for run in plan.runs]
            continue
        found += [Seen(run, said) for run in plan.runs]
    return sorted(found, key=lambda one: (one.run.at, one.run.ref)), aside


def by_stack(found: Sequence[Seen]) -> dict[Stack, list[Seen]]:
    """Runs of one framework on one device family, in the order given."""
    stacks: dict[Stack, list[Seen]] = {}
    for one in found:
        stacks.setdefault(one.foretold.stack, []).append(one)
    return dict(sorted(stacks.items()))
