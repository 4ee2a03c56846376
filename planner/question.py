"""The question that a plan answers: a request without names or gaps. The plan repeats it, so that it stands alone."""

from typing import Any

from cost_models.job import Job
from cost_models.specs.base import Spec
from cost_models.specs.choices import Backend, ObjectiveName
from cost_models.specs.cluster import ClusterSpec, NodePool
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
        return {
            "model": {"architecture": self.model.model_dump(mode="json")},
            "cluster": {"pools": [_stated(pool) for pool in self.cluster.pools]},
            "training": self.training.model_dump(mode="json"),
            "backend": list(self.backends),
            "objective": list(self.objective),
            "objective_tolerance": self.objective_tolerance,
            "constraints": self.constraints.model_dump(mode="json"),
        }


def _stated(pool: NodePool) -> dict[str, Any]:
    written = pool.model_dump(mode="json")
    return {key.removesuffix("_bytes"): value for key, value in written.items()}
