"""Resolve a request: every default expanded, every name looked up, every assumption written down."""

from collections.abc import Sequence
from typing import Final

from cost_models.calibration import Calibration
from cost_models.errors import BrokenRule, SpecError, all_of, within
from cost_models.job import Job
from cost_models.specs.choices import NARROW, SPARING, Precision
from cost_models.specs.cluster import ClusterSpec, DeviceSpec, LinkSpec, NodePool
from cost_models.specs.configuration import Configuration
from cost_models.specs.model import ModelSpec
from cost_models.specs.training import TrainingSpec
from cost_models.units import gib, parse_bandwidth
from planner.configuration_request import complete
from planner.constraints import Constraints
from planner.domain import Domain
from planner.identity import calibration_hash, catalogue_hash, digest, legality_hash
from planner.model_source import resolve_model
from planner.plan import Assumption
from planner.question import Question
from planner.request import ClusterRequest, PlanRequest, PoolRequest
from planner.splits import WIDEST_SEARCH, check_batch, check_degrees

MOST: Final = {
    "training.sequence_length": 2**27,
    "training.global_batch_size": 2**24,
    "cluster: GPUs of all pools": 2**20,
}
"""Sizes beyond any that was ever trained; larger ones are slips of the keyboard."""


class ResolvedRequest(Question):
    """A question with what was assumed to make it whole. Equal questions have equal hashes."""

    assumptions: tuple[Assumption, ...]

    @property
    def question(self) -> Question:
        """The question alone, as the plan repeats it."""
        parts = {name: getattr(self, name) for name in Question.model_fields}
        return Question(**parts | {"constraints": self.constraints.written_out()})

    def request_hash(self, calibration: Calibration) -> str:
        """Identity of the question: the resolved request with calibration, catalogue and legality."""
        return self.request_hash_under(calibration_hash(calibration))

    def request_hash_under(self, calibration_sha256: str) -> str:
        """The same under a calibration whose hash is known."""
        return digest(
            {
                "request": self.model_dump(mode="json", exclude={"assumptions"}),
                "calibration": calibration_sha256,
                "catalogue": catalogue_hash(),
                "legality": legality_hash(),
            }
        )


def resolve(request: PlanRequest) -> ResolvedRequest:
    """Look up every name, expand every default that no back end decides, and check what numbers alone can tell.

    Raises:
        SpecError: a name is unknown, or two numbers of the request contradict each other.
    """
    assumptions: list[Assumption] = []
    model, cluster, assumed = _named(request)
    assumptions += [_read_from_config(text) for text in model.assumptions]
    assumptions += assumed
    training, constraints = _precision(request, [pool.device for pool in cluster.pools], assumptions)
    job = Job(model=model, cluster=cluster, training=training)
    _check(request, job, constraints)
    configuration: Configuration | None = None
    if request.configuration is not None:
        with within("configuration"):
            configuration, derived = complete(request.configuration, job, request.backends)
        assumptions += derived
    return ResolvedRequest(
        model=model,
        cluster=cluster,
        training=training,
        backends=request.backends,
        objective=request.objectives,
        objective_tolerance=request.objective_tolerance,
        constraints=constraints,
        configuration=configuration,
        assumptions=tuple(assumptions),
    )


def _named(request: PlanRequest) -> tuple[ModelSpec, ClusterSpec, list[Assumption]]:
    """The model and the cluster; when both are unknown both are told."""
    wrong = list[SpecError]()
    try:
        model = resolve_model(request.model)
    except SpecError as error:
        wrong.append(error)
    try:
        with within("cluster"):
            cluster, assumed = cluster_of(request.cluster)
    except SpecError as error:
        wrong.append(error)
    if wrong:
        raise all_of(wrong)
    return model, cluster, assumed


def cluster_of(asked: ClusterRequest) -> tuple[ClusterSpec, list[Assumption]]:
    """The cluster with every default of its devices, and which of them were taken.

    Raises:
        SpecError: a name is unknown, or a number of a pool breaks a rule.
    """
    pools, assumptions, wrong = [], list[Assumption](), list[SpecError]()
    for index, pool in enumerate(asked.pools):
        try:
            with within("pools", str(index)):
                found, assumed = _pool(pool, f"cluster.pools.{index}")
        except SpecError as error:
            wrong.append(error)
            continue
        pools.append(found)
        assumptions += assumed
    if wrong:
        raise all_of(wrong)
    if len(pools) > 1 and asked.between_pools is None:
        slower = "the slower network of both pools"
        assumptions.append(Assumption(key="cluster.between_pools", value=slower, from_="default"))
    with within("between_pools"):
        between = _between(asked.between_pools, pools)
    return ClusterSpec(pools=tuple(pools), between_pools=between), assumptions


def _between(stated: str | LinkSpec | None, pools: Sequence[NodePool]) -> LinkSpec | None:
    """What joins the pools: a link of the catalogue, or a rate with the latency of their slowest network."""
    from cost_models import catalog

    if stated is None or isinstance(stated, LinkSpec):
        return stated
    if stated[:1].isdigit() and stated.endswith(("/s", "bps")):
        latency = max(pool.inter_node_link.latency_seconds for pool in pools)
        return LinkSpec(bandwidth=parse_bandwidth(stated), latency_seconds=latency, source="stated")
    return catalog.link(stated)


def _pool(asked: PoolRequest, where: str) -> tuple[NodePool, list[Assumption]]:
    """The pool with the device's own defaults, and which of them were taken."""
    from cost_models import catalog, pools

    with within("device"):
        device = asked.device if isinstance(asked.device, DeviceSpec) else catalog.device(asked.device)
    assumed = list[Assumption]()
    if asked.usable_memory is not None:
        if asked.usable_memory < 1:
            rule = f"{where}.usable_memory is {asked.usable_memory} but must be at least 1 byte"
            raise BrokenRule(rule).at("usable_memory")
        if asked.usable_memory > device.total_memory_bytes:
            why = f"more than the {gib(device.total_memory_bytes)} of a {device.name}, as if it had that much"
            assumed.append(Assumption(key=f"{where}.usable_memory", value=asked.usable_memory, from_=why))
        device = device.with_usable_memory(asked.usable_memory)
    try:
        pool = pools.pool(
            device=device,
            nodes=asked.nodes,
            gpus_per_node=asked.gpus_per_node,
            intra_node_link=_rate("intra_node_link", asked.intra_node_link, device.link),
            inter_node_link=_rate("inter_node_link", asked.inter_node_link, device.inter_node_link),
            link_domain=asked.link_domain,
            host_memory=asked.host_memory,
            nvme=asked.nvme,
            price_per_gpu_hour=asked.price_per_gpu_hour,
        )
    except SpecError as error:
        found = SpecError(f"{where}: {error}")
        found.places = tuple(place for place in error.places if place[0] and place[0][0] in PoolRequest.model_fields)
        raise found from error
    taken = {
        "gpus_per_node": (asked.gpus_per_node, pool.gpus_per_node),
        "intra_node_link": (asked.intra_node_link, pool.intra_node_link.name),
        "inter_node_link": (asked.inter_node_link, pool.inter_node_link.name if pool.nodes > 1 else None),
        "host_memory": (asked.host_memory, pool.host_memory_bytes),
    }
    assumed += [
        Assumption(key=f"{where}.{key}", value=value, from_=f"device {device.name}")
        for key, (stated, value) in taken.items()
        if stated is None and value is not None
    ]
    if isinstance(asked.device, str) and catalog.is_ambiguous(asked.device):
        others = ", ".join(spec.name for spec in catalog.device_candidates(asked.device))
        assumed.append(
            Assumption(key=f"{where}.device", value=device.name, from_=f"{asked.device} may be any of {others}")
        )
    if device.usable_memory_source == "derived":
        value = device.usable_memory_bytes
        assumed.append(Assumption(key=f"{where}.usable_memory", value=value, from_=f"device {device.name}, derived"))
    return pool, assumed


def _rate(key: str, stated: str | LinkSpec | None, default: str) -> str | LinkSpec | None:
    """A link stated as a bare rate keeps the latency and the sharing of the device's own link."""
    from cost_models import catalog

    if not isinstance(stated, str) or not stated[:1].isdigit() or not stated.endswith(("/s", "bps")):
        return stated
    try:
        changes = {"name": "custom", "aliases": (), "bandwidth": parse_bandwidth(stated), "source": "stated"}
        return LinkSpec.read(catalog.link(default).model_dump() | changes)
    except SpecError as error:
        error.places = ()  # a rate is a text, with nothing within
        raise error.at(key) from None


def _read_from_config(text: str) -> Assumption:
    """What reading a config.json took for granted, stated there as `key=value (why)`."""
    key, _, rest = text.partition("=")
    value, _, why = rest.partition(" (")
    return Assumption(key=f"model.{key}", value=value, from_=why.removesuffix(")") or None)


def _precision(
    request: PlanRequest, devices: Sequence[DeviceSpec], assumptions: list[Assumption]
) -> tuple[TrainingSpec, Constraints]:
    """`auto` becomes bf16 where every device multiplies it, else fp16 on GPUs, else fp32; a constraint narrows it.

    A constraint that lists formats leaves the choice among them to the solver; one that only forbids permits none that
    changes results (fp8, NVFP4).
    """
    training, constraints = request.training, request.constraints
    allowed = constraints.precision
    order: tuple[Precision, ...] = ("bf16", "fp16", "fp32", "fp8", "nvfp4")
    able = tuple(
        p
        for p in order
        if all(device.multiplies(p) and not (p == "fp16" and device.kind == "cpu") for device in devices)
    )
    named = " and ".join(dict.fromkeys(device.name for device in devices))
    if training.precision == "auto":
        usable = able if allowed is None else allowed.among(able)
        if allowed is not None and allowed.values is None:
            usable = () if NARROW.intersection(usable[:1]) else usable[:1]
        if not usable:
            rule = f"constraints.precision is {allowed} but {named} computes in {', '.join(able)}"
            raise BrokenRule(rule).at("constraints", "precision")
        if allowed is None or len(usable) == 1:
            assumptions.append(Assumption(key="training.precision", value=usable[0], from_=f"device {named}"))
        if allowed is not None:
            constraints = constraints.model_copy(update={"precision": Domain(values=tuple(sorted(usable)))})
        return training.model_copy(update={"precision": usable[0]}), constraints
    if training.precision not in able:
        rule = f"training.precision is {training.precision} but {named} computes in {', '.join(able)}"
        raise BrokenRule(rule).at("training", "precision")
    if allowed is not None and not allowed.allows(training.precision):
        rule = f"training.precision is {training.precision} but constraints.precision is {allowed}"
        raise BrokenRule(rule).at("training", "precision")
    if allowed is not None:
        constraints = constraints.model_copy(update={"precision": Domain(values=(training.precision,))})
    return training, constraints


def _check(request: PlanRequest, job: Job, constraints: Constraints) -> None:
    """Rules that need no back end and no price."""
    model, cluster, training = job.model, job.cluster, job.training
    sizes = {
        "training.sequence_length": training.sequence_length,
        "training.global_batch_size": training.batch_range.max,
        "cluster: GPUs of all pools": cluster.gpus,
    }
    for key, size in sizes.items():
        if size > MOST[key]:
            rule = f"{key} {size} exceeds {MOST[key]}, the largest that is planned"
            raise BrokenRule(rule).at(*key.partition(":")[0].split("."))
    limit = model.max_position_embeddings
    if model.position_embedding == "learned" and limit is not None and training.sequence_length > limit:
        raise BrokenRule(
            f"training.sequence_length {training.sequence_length} exceeds max_position_embeddings {limit} "
            f"of {model.name}, whose positions are learned"
        ).at("training", "sequence_length")
    if constraints.min_gpus is not None and constraints.min_gpus > cluster.gpus:
        rule = f"constraints.min_gpus {constraints.min_gpus} exceeds the {cluster.gpus} GPUs of the cluster"
        raise BrokenRule(rule).at("constraints", "min_gpus")
    priced = [name for name in request.objectives if name in ("cost", "cost_per_token")]
    if priced:
        for index, pool in enumerate(cluster.pools):
            if pool.price_per_gpu_hour is None:
                rule = f"objective is {priced[0]} but cluster.pools.{index}.price_per_gpu_hour is missing"
                raise SpecError(rule).at("cluster", "pools", str(index), "price_per_gpu_hour")
    if request.configuration is None:
        check_degrees(model, cluster, constraints)
        fewer = request.objectives[0] in SPARING or constraints.max_gpus is not None or len(cluster.pools) > 1
        fewer |= cluster.gpus <= WIDEST_SEARCH
        check_batch(model, cluster, training, constraints, fewer=fewer)
