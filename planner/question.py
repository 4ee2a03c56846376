"""The question that a plan answers: a request without names or gaps. The plan repeats it, so that it stands alone."""

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
