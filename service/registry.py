"""Names of a project's own: models, clusters and devices that requests may then name."""

from datetime import datetime
from typing import Any

from pydantic import Field, model_validator

from cost_models import catalog
from cost_models.errors import UnknownName, without
from cost_models.specs.base import Spec
from cost_models.specs.cluster import DeviceSpec
from cost_models.specs.model import BrokenRuleValue
from planner.model_source import resolve_model
from planner.request import ClusterRequest, ModelRequest, PoolRequest
from planner.resolve import cluster_of
from service.callers import Caller
from service.errors import Conflict, NotFound
from service.orders import Name, with_devices
from service.storage.repositories import Repositories
from service.storage.repositories.registrations import Kind
from service.storage.tables import Registration

MOST = 1000
"""Names of each kind in a project."""


class ModelOrder(Spec):
    """A model under a name; its numbers, or the contents of its config.json."""

    name: Name
    config: dict[str, Any] | None = Field(default=None, description="contents of config.json")
    architecture: dict[str, Any] | None = Field(default=None, description="the numbers themselves")

    @model_validator(mode="after")
    def _one(self) -> "ModelOrder":
        if (self.config is None) == (self.architecture is None):
            raise BrokenRuleValue("give exactly one of config, architecture")
        return self

    @property
    def model(self) -> ModelRequest:
        """As a request would state it."""
        return ModelRequest(config=self.config, architecture=self.architecture)


class DeviceOrder(PoolRequest):
    """A device under a name, and what pools of it get where they state nothing else; a probe's file holds the same."""

    name: Name
    device: DeviceSpec = Field(description="the facts of the device")


class ClusterOrder(ClusterRequest):
    """A cluster under a name."""

    name: Name


class NamedCluster(ClusterOrder):
    """A registered cluster."""

    created_at: datetime
    gpus: int


def register_model(work: Repositories, caller: Caller, order: ModelOrder) -> str:
    """Keep a model that can be planned.

    Raises:
        SpecError: it cannot be read.
        Conflict: the name is taken, by the catalogue or by the project.
    """
    with without("model"):
        resolve_model(order.model)
    try:
        catalog.model(order.name)
    except UnknownName:
        return _register(work, caller, "model", order.name, order.model.model_dump(mode="json", exclude_none=True))
    raise Conflict(f"the catalogue has a model called {order.name}; choose another name")


def register_device(work: Repositories, caller: Caller, order: DeviceOrder) -> str:
    """Keep a device that pools can be made of.

    Raises:
        SpecError: a number of it breaks a rule, or a link is unknown.
        Conflict: the name is taken, by the catalogue or by the project.
    """
    content = order.model_dump(mode="json", exclude={"name"}, exclude_unset=True)
    with without("cluster", "pools", "0"), without("pools", "0"):
        cluster_of(ClusterRequest(pools=(PoolRequest.model_validate(content),)))
    try:
        catalog.device(order.name)
    except UnknownName:
        return _register(work, caller, "device", order.name, content)
    raise Conflict(f"the catalogue has a device called {order.name}; choose another name")


def register_cluster(work: Repositories, caller: Caller, order: ClusterOrder) -> str:
    """Keep a cluster whose devices are known, with what the project's own ones stand for now.

    Raises:
        SpecError: a device or a link is unknown.
        Conflict: the name is taken.
    """
    cluster = with_devices(order, work, caller.project_id)
    with without("cluster"):
        cluster_of(cluster)
    content = cluster.model_dump(mode="json", exclude={"name"}, exclude_unset=True)
    return _register(work, caller, "cluster", order.name, content)


def named_cluster(row: Registration) -> NamedCluster:
    """A registered cluster as callers see it."""
    cluster = ClusterRequest.model_validate(row.content)
    gpus = cluster_of(cluster)[0].gpus
    return NamedCluster(name=row.name, created_at=row.created_at, gpus=gpus, pools=cluster.pools)


def found(work: Repositories, caller: Caller, kind: Kind, name: str) -> Registration:
    """What a name stands for.

    Raises:
        NotFound: nothing is registered under it.
    """
    row = work.registrations.get(caller.project_id, kind, name)
    if row is None:
        raise NotFound(f"no {kind} is registered as {name!r}")
    return row


def forget(work: Repositories, caller: Caller, kind: Kind, name: str) -> None:
    """Free a name. Requests that used it hold what it stood for.

    Raises:
        NotFound: nothing is registered under it.
    """
    if not work.registrations.remove(caller.project_id, kind, name):
        raise NotFound(f"no {kind} is registered as {name!r}")


def _register(work: Repositories, caller: Caller, kind: Kind, name: str, content: dict[str, Any]) -> str:
    if work.registrations.get(caller.project_id, kind, name) is not None:
        raise Conflict(f"a {kind} is registered as {name} already; delete it first, or choose another name")
    if len(work.registrations.names(caller.project_id, kind)) >= MOST:
        raise Conflict(f"{MOST} {kind}s are registered, the most that a project may name")
    work.registrations.add(Registration(project_id=caller.project_id, kind=kind, name=name, content=content))
    return name
