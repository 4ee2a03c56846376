"""The question that a plan answers: a request without names or gaps. The plan repeats it, so that it stands alone."""

from collections.abc import Mapping
from typing import Any

from cost_models.job import Job
from cost_models.specs.base import Spec
from cost_models.specs.choices import Backend, ObjectiveName
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.configuration import Configuration
from cost_models.specs.model import ModelSpec
from cost_models.specs.training import TrainingSpec
from planner.constraints import Constraints


class Question(Spec):
    """Every name looked up, every default that no back end decides written out."""

    model: ModelSpec
    cluster: ClusterSpec
    training: TrainingSpec
    backends: tuple[Backend, ...]
    objective: tuple[ObjectiveName, ...]
    objective_tolerance: float
    constraints: Constraints
    configuration: Configuration | None
    """Of an estimate: what was to be priced."""

    @property
    def job(self) -> Job:
        """What the formulas price."""
        return Job(model=self.model, cluster=self.cluster, training=self.training)

    def as_request(self) -> dict[str, Any]:
        """The same question as a request that states everything, without the configuration."""
        return as_request(self.model_dump(mode="json", exclude={"configuration"}))


def is_question(data: Any) -> bool:
    """Whether this is the `request` of a plan: there back ends are listed, where a request names one or several."""
    return isinstance(data, Mapping) and "backends" in data and "backend" not in data


def as_request(question: Mapping[str, Any]) -> dict[str, Any]:
    """The `request` of a plan in the words of a request, which resolves to the same question."""
    stated = dict(question)
    stated["backend"] = stated.pop("backends")
    model, cluster, training = stated.get("model"), stated.get("cluster"), stated.get("training")
    if isinstance(training, Mapping) and _open(stated.get("constraints")):
        stated["training"] = {**training, "precision": "auto"}
    if isinstance(model, Mapping) and "architecture" not in model:
        stated["model"] = {"architecture": model}
    if isinstance(cluster, Mapping) and isinstance(cluster.get("pools"), list | tuple):
        stated["cluster"] = {**cluster, "pools": [_stated(pool) for pool in cluster["pools"]]}
    return stated


def _open(constraints: Any) -> bool:
    """Whether the precision is chosen among several: then the job's is only the first of them."""
    precision = constraints.get("precision") if isinstance(constraints, Mapping) else None
    values = precision.get("values") if isinstance(precision, Mapping) else None
    return isinstance(values, list | tuple) and len(values) > 1


def _stated(pool: Any) -> Any:
    return {key.removesuffix("_bytes"): value for key, value in pool.items()} if isinstance(pool, Mapping) else pool
