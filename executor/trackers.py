"""A run's record in experiment trackers: plan, predicted beside measured, losses, links. None is needed.

Each is its library's own, imported when asked for: `tensorboard` (files in the run's directory), `mlflow` (where
MLFLOW_TRACKING_URI says, else SQLite there), `wandb` (offline unless WANDB_MODE says otherwise).
"""

import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from executor.errors import PlanRefused
from executor.report import RunReport, read_ranks
from planner.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What every tracker gets."""

    name: str
    directory: Path
    parameters: Mapping[str, str]
    """The configuration, the releases, and links to plan and service."""
    figures: Mapping[str, float]
    """`predicted/QUANTITY`, `measured/QUANTITY`, `share/...`."""
    losses: Sequence[tuple[int, float]]
    """By step."""


def record(plan: Plan, report: RunReport, service: str | None) -> Record:
    """Of a run that is over."""
    assert plan.configuration is not None
    figures: dict[str, float] = {}
    for line in report.comparisons:
        figures[f"predicted/{line.quantity}"] = line.predicted
        if line.measured is not None:
            figures[f"measured/{line.quantity}"] = line.measured
    if report.split is not None:
        figures |= {f"split/{name}": seconds for name, seconds in report.split.model_dump().items()}
    links = {"plan": report.plan_id, "request_hash": report.request_hash, "outcome": report.outcome}
    if service:
        links["plan_url"] = f"{service.rstrip('/')}/v1/plans/{report.plan_id}"
    chosen = {f"configuration.{key}": str(value) for key, value in plan.configuration.model_dump(mode="json").items()}
    ranks = read_ranks(Path(report.directory) / "reports")
    return Record(
        name=f"meshwright-{report.plan_id}",
        directory=Path(report.directory),
        parameters={**links, **{f"release.{name}": text for name, text in report.versions.items()}, **chosen},
        figures=figures,
        losses=[(step, loss) for step, loss in ranks[0].losses_by_step if loss is not None] if ranks else [],
    )


def track(names: Sequence[str], found: Record) -> None:
    """Write the record to each tracker named."""
    for name in names:
        TRACKERS[name](found)


def check_installed(names: Sequence[str]) -> None:
    """Before a run, not after it.

    Raises:
        PlanRefused: a tracker's package is not installed.
    """
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise PlanRefused(f"--tracker {name} needs the package {name}, which is not installed")


def _tensorboard(found: Record) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(log_dir=str(found.directory / "tensorboard")) as writer:
        table = "".join(f"| {key} | {value} |\n" for key, value in found.parameters.items())
        writer.add_text("plan", f"| key | value |\n|---|---|\n{table}")
        for key, value in found.figures.items():
            writer.add_scalar(key, value, 0)
        for step, loss in found.losses:
            writer.add_scalar("loss", loss, step)


_EXPERIMENT: Final = "meshwright"


def _mlflow(found: Record) -> None:
    import mlflow

    if "MLFLOW_TRACKING_URI" not in os.environ:
        here = found.directory.absolute()
        mlflow.set_tracking_uri(f"sqlite:///{here / 'mlflow.db'}")  # MLflow 3.17 takes a folder of files no more
        mlflow.create_experiment(_EXPERIMENT, artifact_location=(here / "mlflow").as_uri())
        mlflow.set_experiment(_EXPERIMENT)
    with mlflow.start_run(run_name=found.name):
        mlflow.log_params({key: value[:500] for key, value in found.parameters.items()})
        mlflow.log_metrics({key.replace("/", "."): value for key, value in found.figures.items()})
        for step, loss in found.losses:
            mlflow.log_metric("loss", loss, step=step)
        mlflow.log_artifact(str(found.directory / "plan.json"))


def _wandb(found: Record) -> None:
    import wandb

    run: Any = wandb.init(
        project=_EXPERIMENT,
        name=found.name,
        dir=str(found.directory),
        config=dict(found.parameters),
        mode=os.environ.get("WANDB_MODE", "offline"),
    )
    for step, loss in found.losses:
        run.log({"loss": loss}, step=step)
    run.summary.update(dict(found.figures))
    run.finish()


TRACKERS: Final[dict[str, Callable[[Record], None]]] = {"tensorboard": _tensorboard, "mlflow": _mlflow, "wandb": _wandb}
