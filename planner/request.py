"""The request: what a person asks. YAML for people, the same JSON on the wire; closed to unknown keys."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator

from cost_models.specs.base import Spec
from cost_models.specs.choices import BACKENDS, MAINTAINED_BACKENDS, Backend, ObjectiveName
from cost_models.specs.cluster import DeviceSpec, LinkSpec
from cost_models.specs.model import BrokenRuleValue
from cost_models.specs.training import TrainingSpec
from cost_models.units import ByteSize
from planner.configuration_request import ConfigurationRequest
from planner.constraints import Constraints
from planner.question import as_request, is_question
from planner.reading import read_file, shortened


class ModelRequest(Spec):
    """Exactly one way to say which model; a name alone is that of a preset, or with a slash a Hub id."""

    preset: str | None = Field(default=None, description="name in the catalogue, such as llama-2-7b")
    config: dict[str, Any] | str | None = Field(
        default=None, description="config.json inline; a path at the command line"
    )
    hub: str | None = Field(default=None, description="Hugging Face Hub id, such as meta-llama/Llama-2-7b-hf")
    architecture: dict[str, Any] | None = Field(default=None, description="the numbers themselves")

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        """A name alone: a Hub id has a slash, a preset none."""
        if not isinstance(value, str):
            return value
        return {"hub" if "/" in value else "preset": value}

    @model_validator(mode="after")
    def _one(self) -> "ModelRequest":
        ways = [name for name in ("preset", "config", "hub", "architecture") if getattr(self, name) is not None]
        if len(ways) != 1:
            raise BrokenRuleValue(
                f"{' and '.join(ways) or 'nothing'} given; give exactly one of preset, config, hub, architecture"
            )
        return self


class PoolRequest(Spec):
    """Equal nodes. What is left out is the device's usual node."""

    device: str | DeviceSpec = Field(description="catalogue name, or the facts of a device that it lacks")
    nodes: PositiveInt = 1
    gpus_per_node: PositiveInt | None = None
    intra_node_link: str | LinkSpec | None = Field(
        default=None, description="catalogue name, or a rate such as 300GB/s"
    )
    inter_node_link: str | LinkSpec | None = Field(
        default=None, description="catalogue name, or a rate such as 400Gb/s"
    )
    link_domain: PositiveInt | None = None
    host_memory: ByteSize | None = Field(default=None, description="of one node")
    nvme: ByteSize = Field(default=0, description="of one node")
    usable_memory: ByteSize | None = Field(default=None, description="of one device, as torch sees it")
    price_per_gpu_hour: NonNegativeFloat | None = None


class ClusterRequest(Spec):
    """One or several pools."""

    pools: tuple[PoolRequest, ...] = Field(min_length=1, max_length=16)
    between_pools: str | LinkSpec | None = Field(
        default=None, description="link of nodes in different pools: catalogue name, or a rate such as 100Gb/s"
    )


class PlanRequest(Spec):
    """A model, a cluster, a training job, an objective, and what the answer must obey; or the `request` of a plan."""

    model: ModelRequest
    cluster: ClusterRequest
    training: TrainingSpec
    backend: Backend | Literal["any"] | tuple[Backend, ...] = "any"
    objective: ObjectiveName | tuple[ObjectiveName, ...] = "throughput"
    objective_tolerance: float = Field(default=0.0, ge=0, lt=1)
    """Within this relative distance of the optimum the simplest plan is preferred."""
    constraints: Constraints = Constraints()
    configuration: ConfigurationRequest | None = None
    """For an estimate: price exactly this."""

    @model_validator(mode="before")
    @classmethod
    def _of_plan(cls, data: Any) -> Any:
        """The `request` of a plan asks the same again."""
        return as_request(data) if is_question(data) else data

    @model_validator(mode="after")
    def _lists(self) -> "PlanRequest":
        for name in ("backend", "objective"):
            value = getattr(self, name)
            if isinstance(value, tuple) and (not value or len(set(value)) != len(value)):
                raise BrokenRuleValue(f"{name} {shortened(str([*value]))} must list each name once, and at least one")
        return self

    @property
    def backends(self) -> tuple[Backend, ...]:
        """Back ends allowed, in catalogue order; `any` leaves out what is no longer released."""
        if self.backend == "any":
            return MAINTAINED_BACKENDS
        asked = self.backend if isinstance(self.backend, tuple) else (self.backend,)
        return tuple(name for name in BACKENDS if name in asked)

    @property
    def objectives(self) -> tuple[ObjectiveName, ...]:
        """Objectives, most important first."""
        return self.objective if isinstance(self.objective, tuple) else (self.objective,)


def inline_files(data: dict[str, Any], base: Path) -> dict[str, Any]:
    """The request with the files that it names read in, relative to `base`: self-contained, fit for the wire.

    `model.config`, or a model that is a path, may name a config.json; a pool's `device` may name a file that holds a
    pool, as a probe writes it, whose numbers stand where the request states none. `cluster: {device: FILE}` is a
    cluster of that one pool.

    Raises:
        RequestUnreadable: no such file, or no JSON object in it.
    """
    model, cluster = data.get("model"), data.get("cluster")
    if isinstance(model, str) and model.endswith(".json"):
        model = {"config": model}
    if isinstance(model, dict) and isinstance(model.get("config"), str):
        path = base / model["config"]
        config = read_file(path / "config.json" if path.is_dir() else path)
        data = {**data, "model": {**model, "config": config}}
    if isinstance(cluster, dict) and _names_file(cluster):
        cluster = {"pools": [cluster]}
    if isinstance(cluster, dict) and isinstance(cluster.get("pools"), list):
        pools = [{**read_file(base / pool["device"]), **_stated(pool)} if _names_file(pool) else pool
                 for pool in cluster["pools"]]  # fmt: skip
        data = {**data, "cluster": {**cluster, "pools": pools}}
    return data


def _names_file(pool: Any) -> bool:
    """Whether a pool's device is a path, which no name of the catalogue looks like."""
    named = pool.get("device") if isinstance(pool, dict) else None
    return isinstance(named, str) and named.endswith((".yaml", ".yml", ".json"))


def _stated(pool: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in pool.items() if key != "device"}


def load_request(path: Path) -> dict[str, Any]:
    """The request in a file, with the files that it names read in; not yet validated, so that flags may change it.

    Raises:
        RequestUnreadable: no such file, or not one plain mapping.
    """
    return inline_files(read_file(path), path.parent)
