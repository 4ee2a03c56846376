"""The benchmark instances of `instances.yaml` as problems, in both modes."""

from pathlib import Path
from typing import Any, Final

import yaml

from cost_models import catalog
from cost_models.job import Job
from cost_models.specs.cluster import ClusterSpec, LinkSpec, NodePool
from cost_models.specs.model import ModelSpec
from cost_models.specs.training import TrainingSpec
from solver.domains import Domains, Requirement, default_domains, permit_compression, requirement
from solver.problem import Problem

MODES: Final = ("any", "megatron")


def _pool(entry: dict[str, Any]) -> NodePool:
    device = catalog.device(entry["device"])
    per_node = entry["gpus_per_node"]
    link = LinkSpec(name=device.link, bandwidth=device.link_bandwidth)
    if "intra_node_link" in entry:
        link = catalog.link(entry["intra_node_link"])
    return NodePool.read(
        {
            "device": device,
            "nodes": entry["gpus"] // per_node,
            "gpus_per_node": per_node,
            "intra_node_link": link,
            "inter_node_link": LinkSpec(name="network", bandwidth=device.inter_node_bandwidth),
            "link_domain": max(device.link_domain, 1),
            "host_memory_bytes": entry["host_memory"],
        }
    )


def _model(entry: Any) -> ModelSpec:
    return catalog.model(entry) if isinstance(entry, str) else ModelSpec.read(entry)


def load(path: Path | None = None) -> dict[str, Any]:
    """The file's content."""
    text = (path or Path(__file__).parent / "instances.yaml").read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load(text)
    return content


def problem(name: str, mode: str) -> Problem:
    """One instance as a problem."""
    content = load()
    entry, domains = content["instances"][name], content["domains"]
    pools = tuple(_pool(pool) for pool in entry.get("pools", [entry]))
    training = TrainingSpec.read(
        {"sequence_length": entry["sequence_length"], "global_batch_size": entry["global_batch_size"]}
    )
    job = Job(model=_model(entry["model"]), cluster=ClusterSpec(pools=pools), training=training)
    powers = [2**i for i in range(20)]
    offered = default_domains(job).with_values(
        micro_batch_size=domains["micro_batch"],
        tensor_parallel=[p for p in powers if p <= 2 * pools[0].gpus_per_node],
        context_parallel=domains["context_parallel"],
        virtual_pipeline_stages=domains["virtual_pipeline_stages"],
        recompute_interval=domains["recompute_interval"],
        expert_parallel=powers,
    )
    offered = Domains({key: values for key, values in offered.values.items() if key != "gpus"})
    wishes: tuple[Requirement, ...] = ()
    if mode == "megatron":
        wishes = (requirement("backend", "megatron"), requirement("zero_stage", [0, 1]))
    else:
        offered = permit_compression(offered, "lossy")
    return Problem(job=job, calibration=catalog.calibration(), domains=offered, requirements=wishes)
