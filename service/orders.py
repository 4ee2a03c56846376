"""What callers post: a request whose cluster and model may be names of the project's own, and where to call back."""

from typing import Annotated, Any, Final

from pydantic import Discriminator, Field, PositiveInt, Tag

from cost_models import catalog
from cost_models.errors import SpecError, UnknownName, all_of, within
from cost_models.specs.base import Spec
from planner.fronts import MOST_POINTS, POINTS, Axes
from planner.model_source import resolve_model
from planner.request import ClusterRequest, ModelRequest, PlanRequest, PoolRequest
from service.errors import NotInline, UnknownNames
from service.storage.repositories import Repositories

NAME_PATTERN: Final = r"^[a-z0-9][a-z0-9._-]*$"
Name = Annotated[str, Field(pattern=NAME_PATTERN, max_length=200)]
"""Of what a project registers: lower-case letters, digits, dots, dashes and underscores."""


def _kind(value: Any) -> str:
    return "name" if isinstance(value, str) else "cluster"


class Order(PlanRequest):
    """A request that may name a registered cluster or model."""

    cluster: Annotated[
        Annotated[ClusterRequest, Tag("cluster")] | Annotated[Name, Tag("name")], Discriminator(_kind)
    ] = Field(  # type: ignore[assignment]
        description="pools of nodes, or the name of a registered cluster"
    )


class Webhook(Spec):
    """Where a message is posted when the plan is made, failed or cancelled."""

    url: str = Field(
        max_length=2000,
        pattern=r"^https?://[\x21-\x7e]+$",  # what a request line can hold (RFC 3986): no blanks, no line ends
        examples=["https://scheduler.example.com/hooks/plans"],
    )


class PlanOrder(Order):
    """A request for a plan."""

    webhook: Webhook | None = None


class FrontierOrder(PlanOrder):
    """A request for all configurations that nothing beats on two axes."""

    axes: Axes = Field(default=("time", "memory"), description="time, and one of memory, gpus, cost")
    points: int = Field(default=POINTS, ge=2, le=MOST_POINTS)


class LadderOrder(PlanOrder):
    """A request for the best configuration on every number of devices."""

    low: PositiveInt = Field(default=1, description="fewest devices")
    high: PositiveInt | None = Field(default=None, description="most devices; the cluster's when left out")


def options_of(order: Order) -> dict[str, Any]:
    """What the order says beside the request, as arguments of its verb."""
    own = type(order).model_fields.keys() - PlanOrder.model_fields.keys()
    return order.model_dump(mode="json", include=set(own))


def inline(order: Order) -> None:
    """Check that the order carries its model itself or by a name.

    Raises:
        NotInline: it names a file or a Hub id, which the service neither opens nor fetches.
    """
    if isinstance(order.model.config, str):
        raise NotInline("/model/config", "model.config is a path; over HTTP give the contents of config.json instead")
    if order.model.hub is not None:
        raise NotInline(
            "/model/hub", "model.hub is not fetched by the service; give model.config, the contents of its config.json"
        )


def resolved_names(order: Order, work: Repositories, project_id: str) -> PlanRequest:
    """The request without names that only this project knows: it means the same for ever.

    Raises:
        UnknownNames: no such cluster is registered.
        SpecError: no such devices are in the catalogue or registered.
    """
    wrong = list[SpecError]()
    parts = {name: getattr(order, name) for name in PlanRequest.model_fields}
    if isinstance(order.cluster, str):
        cluster = work.registrations.content(project_id, "cluster", order.cluster)
        if cluster is None:
            known = ", ".join(work.registrations.names(project_id, "cluster")[:20]) or "none"
            raise UnknownNames("/cluster", f"no cluster is registered as {order.cluster!r}; there are {known}")
        parts["cluster"] = ClusterRequest.model_validate(cluster)
    else:
        try:
            with within("cluster"):
                parts["cluster"] = with_devices(order.cluster, work, project_id)
        except SpecError as error:
            wrong.append(error)
    if order.model.preset is not None:
        model = work.registrations.content(project_id, "model", order.model.preset)
        if model is not None:
            parts["model"] = ModelRequest.model_validate(model)
    if wrong:
        raise all_of([*_unknown(parts["model"]), *wrong])
    return PlanRequest(**parts)


def _unknown(model: ModelRequest) -> list[SpecError]:
    """What is wrong with the model, to be told with what else is."""
    try:
        resolve_model(model)
    except SpecError as error:
        return [error]
    return []


def with_devices(cluster: ClusterRequest, work: Repositories, project_id: str) -> ClusterRequest:
    """The cluster with what the project's own devices stand for; what its pools state wins over that.

    Raises:
        SpecError: no such devices are in the catalogue or registered.
    """
    pools, wrong = list[PoolRequest](), list[SpecError]()
    for index, pool in enumerate(cluster.pools):
        try:
            pools.append(_pool(pool, work, project_id))
        except SpecError as error:
            wrong.append(error.at("pools", str(index), "device"))
    if wrong:
        raise all_of(wrong)
    return cluster if tuple(pools) == cluster.pools else cluster.model_copy(update={"pools": tuple(pools)})


def _pool(pool: PoolRequest, work: Repositories, project_id: str) -> PoolRequest:
    """A pool of a registered device. Names of the catalogue cannot be registered: those are not looked up."""
    if not isinstance(pool.device, str):
        return pool
    try:
        catalog.device(pool.device)
    except UnknownName as error:
        device = work.registrations.content(project_id, "device", pool.device)
        if device is None:
            own = ", ".join(work.registrations.names(project_id, "device")[:20]) or "none"
            raise SpecError(f"{error}; the project has registered {own}") from error
        stated = pool.model_dump(exclude_unset=True, exclude={"device"})
        return PoolRequest.model_validate({**device, **stated})
    return pool
