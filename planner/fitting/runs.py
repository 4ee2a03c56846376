"""Runs of plans as evidence: what was measured of a plan's own job, on its own devices."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

from cost_models.calibration import Calibration
from cost_models.job import Job
from cost_models.memory import error_regime, memory_ledger, regime_of
from cost_models.specs.configuration import Configuration
from planner.datasets.jobs import Case
from planner.fitting.evidence import Sample
from planner.fitting.site import SiteUpdate, updated
from planner.fitting.site_memory import Peak, site_memory
from planner.fitting.unlearned import unlearned
from planner.measurement import Measurement

SOURCE = "site"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a plan. What was not measured is None."""

    ref: str
    """Of the run: equal ones count once."""
    job: Job
    configuration: Configuration
    step_seconds: float | None = None
    allocated_bytes: float | None = None

    @property
    def sample(self) -> Sample | None:
        """The run as evidence of time."""
        if self.step_seconds is None:
            return None
        row = Measurement(source=SOURCE, ref=self.ref, step_time_s=self.step_seconds, outcome="ok")
        case = Case(job=self.job, configuration=self.configuration, assumed=(), ambiguous_device=False)
        return Sample(row, case, self.step_seconds)


def calibrated(calibration: Calibration, runs: Sequence[Run]) -> SiteUpdate:
    """The calibration corrected with a site's own runs, time and memory, and what they did.

    `calibration` is the prior: pass the shipped one with all runs of the site, never an update of an update.
    """
    found = [sample for run in runs if (sample := run.sample) is not None]
    update = updated(calibration, found)
    memory, notes = site_memory(calibration, weighed(calibration, runs)), unlearned(calibration, found, update.told)
    factors = {**update.calibration.factors, **memory, **notes}
    return SiteUpdate(update.calibration.model_copy(update={"factors": factors}), update.told)


def weighed(calibration: Calibration, runs: Sequence[Run]) -> list[Peak]:
    """The runs as evidence of memory. No constant of the ledger is fitted: every run is one that no fit has seen."""
    found = []
    for run in runs:
        if run.allocated_bytes:
            ledger = memory_ledger(run.job, run.configuration, calibration, oom_risk=0.01)
            regime = error_regime(regime_of(run.job, run.configuration, calibration))
            error = log(run.allocated_bytes / ledger.allocated_bytes)
            plan = run.configuration.model_dump_json() + run.job.training.model_dump_json()
            found.append(Peak(regime, run.job.device.family, plan, error))
    return found
