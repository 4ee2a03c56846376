"""Kubernetes: an indexed Job with a headless Service, or Kubeflow's PyTorchJob; the plan comes in a ConfigMap.

Manifests are dumped from data, so no value can change their shape. `$(NAME)` in arguments is expanded by the kubelet; a
`$(` of the user's own is written `$$(`, which stands for itself.
"""

from typing import Any, Final

import yaml

from executor.errors import PlanRefused
from executor.launchers.job import PORT, Job

_FOLDER: Final = "/meshwright"
_INDEX: Final = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_MAX_CONFIG_BYTES: Final = 2**20 - 4096
"""Of a ConfigMap, less its metadata."""


def render_job(job: Job) -> dict[str, str]:
    """A Job of `batch/v1`, the pods of which find node 0 through a headless Service.

    Raises:
        PlanRefused: no image, or the plan is too large for a ConfigMap.
    """
    several = job.options.nodes.count > 1
    head = f"{job.name}-0.{job.name}:{PORT}"
    rank = ["--node-rank", "$(NODE_RANK)", "--rendezvous", head] if several else []
    variables = [{"name": "NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": _INDEX}}}] if several else []
    pod = _pod(job, rank, variables)
    pod["spec"] |= {"restartPolicy": "Never", **({"subdomain": job.name} if several else {})}
    count = job.options.nodes.count
    spec = {"completions": count, "parallelism": count, "completionMode": "Indexed", "backoffLimit": 0, "template": pod}
    documents = [_config_map(job), {"apiVersion": "batch/v1", "kind": "Job", **_named(job), "spec": spec}]
    if several:
        # Pods must find each other before they are ready: they are ready when they have.
        service = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"job-name": job.name}}
        documents.insert(1, {"apiVersion": "v1", "kind": "Service", **_named(job), "spec": service})
    return {"job.yaml": yaml.safe_dump_all(documents, sort_keys=False, width=110)}


def render_pytorchjob(job: Job) -> dict[str, str]:
    """A PyTorchJob of `kubeflow.org/v1`; its operator states each pod's RANK and the master's address.

    Raises:
        PlanRefused: no image, or the plan is too large for a ConfigMap.
    """
    count = job.options.nodes.count
    rank = ["--node-rank", "$(RANK)", "--rendezvous", "$(MASTER_ADDR):$(MASTER_PORT)"] if count > 1 else []

    def replicas(number: int) -> dict[str, Any]:
        return {"replicas": number, "restartPolicy": "Never", "template": _pod(job, rank, [])}

    specs = {"Master": replicas(1), **({"Worker": replicas(count - 1)} if count > 1 else {})}
    kind = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", **_named(job)}
    documents = [_config_map(job), {**kind, "spec": {"pytorchReplicaSpecs": specs}}]
    return {"job.yaml": yaml.safe_dump_all(documents, sort_keys=False, width=110)}


def _named(job: Job) -> dict[str, Any]:
    return {"metadata": {"name": job.name, "labels": {"app.kubernetes.io/managed-by": "meshwright"}}}


def _config_map(job: Job) -> dict[str, Any]:
    text = job.plan.to_json()
    if len(text.encode()) > _MAX_CONFIG_BYTES:
        raise PlanRefused(f"the plan holds {len(text.encode())} bytes, a ConfigMap at most {_MAX_CONFIG_BYTES}")
    return {"apiVersion": "v1", "kind": "ConfigMap", **_named(job), "data": {"plan.json": text}}


def _pod(job: Job, rank: list[str], variables: list[dict[str, Any]]) -> dict[str, Any]:
    if job.image is None:
        raise PlanRefused("Kubernetes needs --image: a container with meshwright and the training script")
    words = job.command(f"{_FOLDER}/plan.json", "meshwright-run")
    limits: dict[str, Any] = {"nvidia.com/gpu": job.gpus} if job.gpus else {"cpu": job.processes}
    container = {
        "name": "pytorch",  # the name that the PyTorchJob operator looks for
        "image": job.image,
        "command": [_literal(word) for word in words] + rank + [_literal(word) for word in job.training],
        **({"env": variables} if variables else {}),
        "resources": {"limits": limits},
        "volumeMounts": [
            {"name": "plan", "mountPath": _FOLDER, "readOnly": True},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
    }
    volumes = [{"name": "plan", "configMap": {"name": job.name}}, {"name": "shm", "emptyDir": {"medium": "Memory"}}]
    return {"spec": {"containers": [container], "volumes": volumes}}


def _literal(word: str) -> str:
    return word.replace("$(", "$$(")
