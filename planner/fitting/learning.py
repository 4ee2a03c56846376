"""From all runs of a site's plans to its calibration: what is evidence, what it moved, and what was set aside."""

from collections.abc import Sequence

from cost_models.calibration import Calibration, Factor
from cost_models.specs.base import Spec
from planner.fitting.drift import Drift, drifts, noted
from planner.fitting.runs import Run, calibrated
from planner.fitting.shortage import shortages
from planner.fitting.sifting import sifted
from planner.fitting.site_runs import Quantity, RunPlan, Seen, SetAside, seen
from planner.identity import digest


class FamilyTold(Spec):
    """What the runs on one device family did."""

    family: str
    runs: int
    moved: tuple[str, ...]
    """Constants that follow them."""
    why: str
    """Why none does; "" where some do."""
    out_of_range: tuple[str, ...] = ()
    """Constants that they would move further than their prior allows, and that go no further."""


class Learned(Spec):
    """A calibration with what stands behind it."""

    calibration: Calibration
    used: tuple[str, ...]
    """Refs of the runs that are evidence of something."""
    set_aside: tuple[SetAside, ...]
    families: tuple[FamilyTold, ...]
    raised: tuple[str, ...]
    """Factors of memory raised by runs that ran out of it."""
    drift: tuple[Drift, ...]
    """The last runs against this calibration."""


def learn(prior: Calibration, plans: Sequence[RunPlan]) -> Learned:
    """The prior corrected with the runs of all plans. Pass the shipped one and all runs, never an update of an update.

    Which runs count does not depend on earlier updates, so that one that went wrong leaves no trace in the next.
    """
    found, aside = seen(plans, prior)
    kept, odd = sifted(found)
    update = calibrated(prior, _evidence(found, kept))
    raised, contradicted = _shortages(plans, update.calibration, found)
    aside += [*odd, *contradicted]
    told_of = {(one.ref, one.quantity) for one in aside}
    used = [one.run.ref for one in found if _tells(one, told_of)]
    factors = {**update.calibration.factors, **raised}
    mark = digest([run.model_dump(mode="json") for plan in plans for run in plan.runs])
    calibration = Calibration(
        version=f"{prior.version}+site{len(used)}-{mark[:8]}",
        factors=factors,
        data={**prior.data, "measurements": mark},
    )
    last = drifts(seen(plans, calibration)[0])
    return Learned(
        calibration=noted(calibration, last),
        used=tuple(used),
        set_aside=tuple(aside),
        families=tuple(
            FamilyTold(
                family=t.family, runs=t.rows, moved=tuple(sorted(t.moved)), why=t.why, out_of_range=t.out_of_range
            )
            for t in update.told
        ),
        raised=tuple(raised),
        drift=last,
    )


def _shortages(
    plans: Sequence[RunPlan], corrected: Calibration, found: Sequence[Seen]
) -> tuple[dict[str, Factor], list[SetAside]]:
    """What ran out of memory beside what is foretold of it after the measured peaks have corrected that: neither is
    counted twice.
    """
    if not any(one.run.outcome == "oom" for one in found):
        return {}, []
    return shortages(corrected, seen(plans, corrected)[0])


def _evidence(found: Sequence[Seen], kept: dict[Quantity, list[Seen]]) -> list[Run]:
    """Each run with the figures of it that count."""
    good = {quantity: {one.run.ref for one in runs} for quantity, runs in kept.items()}
    runs = []
    for one in found:
        run, said = one.run, one.foretold
        timed, weighed = run.ref in good["step_seconds"], run.ref in good["peak_allocated_bytes"]
        if timed or weighed:
            runs.append(
                Run(
                    ref=run.ref,
                    job=said.job,
                    configuration=said.configuration,
                    step_seconds=run.step_seconds if timed else None,
                    allocated_bytes=run.peak_allocated_bytes if weighed else None,
                )
            )
    return runs


def _tells(one: Seen, aside: set[tuple[str, str]]) -> bool:
    """Whether something of a run counts."""
    run = one.run
    if run.outcome == "oom":
        return (run.ref, "oom") not in aside
    stated = [name for name in ("step_seconds", "peak_allocated_bytes") if getattr(run, name) is not None]
    return run.outcome == "ok" and any((run.ref, name) not in aside for name in stated)
