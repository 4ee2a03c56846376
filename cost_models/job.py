"""A job: what is trained, on what, how. Every formula takes it first."""

from dataclasses import dataclass

from cost_models.errors import BrokenRule
from cost_models.specs.cluster import ClusterSpec, DeviceSpec, LinkSpec, NodePool
from cost_models.specs.model import ModelSpec
from cost_models.specs.training import TrainingSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Model, cluster and training job: the constants of one pricing."""

    model: ModelSpec
    cluster: ClusterSpec
    training: TrainingSpec
    boundary: LinkSpec | None = None
    """What carries the transfers of a stage beside another pool; None where they stay in its own."""
    ends: LinkSpec | None = None
    """The same for what the first and the last stage exchange."""

    @property
    def pool(self) -> NodePool:
        """The one pool.

        Raises:
            BrokenRule: the cluster has several pools; a stage sees one of them (`placement.seen`).
        """
        if len(self.cluster.pools) != 1:
            count = len(self.cluster.pools)
            raise BrokenRule(f"cluster.pools lists {count} pools; this question is about one of them")
        return self.cluster.pools[0]

    @property
    def device(self) -> DeviceSpec:
        """The one device."""
        return self.pool.device
