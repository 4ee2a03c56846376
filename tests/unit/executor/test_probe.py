"""A probe's fit and the pool it writes; a request that names the file plans for that node."""

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from executor import probing
from executor.errors import ProbeFailed
from executor.probe.fit import COLLECTIVES, Collective, alpha_beta, ring_steps, wire_bytes
from executor.probe.node import Gpu, Node, read_gpus, read_node
from executor.probe.pool import pool_of
from executor.probe.worker import Figures
from executor.probing import Probe, write_pool
from planner.planning import plan
from planner.request import PlanRequest, load_request
from planner.resolve import resolve
from service.registry import ClusterOrder, DeviceOrder

ALPHA, RATE = 2e-4, 1.5e9
SIZES = [2**power for power in range(12, 26, 2)]


def seconds(collective: Collective, size: int, processes: int) -> float:
    return ring_steps(collective, processes) * ALPHA + wire_bytes(collective, size, processes) / RATE


@pytest.mark.parametrize("processes", [2, 4])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_the_fit_finds_latency_and_rate(collective: Collective, processes: int) -> None:
    fit = alpha_beta(collective, processes, [(size, seconds(collective, size, processes)) for size in SIZES])
    assert fit.alpha_seconds == pytest.approx(ALPHA)
    assert fit.bytes_per_second == pytest.approx(RATE)
    assert fit.max_error == pytest.approx(0.0, abs=1e-9)


def test_the_error_says_how_far_the_model_is_off() -> None:
    points = [(size, seconds("all_reduce", size, 2)) for size in SIZES]
    points[0] = (points[0][0], 2 * points[0][1])
    fit = alpha_beta("all_reduce", 2, points)
    assert 0.2 < fit.max_error <= 0.6
    assert fit.bytes_per_second == pytest.approx(RATE, rel=0.2)


def test_latency_is_never_negative() -> None:
    fit = alpha_beta("all_gather", 2, [(1000, 1e-6), (10_000, 2e-5), (100_000, 2.5e-4)])
    assert fit.alpha_seconds == 0.0
    assert fit.bytes_per_second > 0


def test_an_all_reduce_sends_twice_what_a_reduce_scatter_sends() -> None:
    assert wire_bytes("all_reduce", 800, 4) == 2 * wire_bytes("reduce_scatter", 800, 4) == 1200


def node(*gpus: Gpu) -> Node:
    return Node(hostname="n", cpu="some CPU", cores=2, memory_bytes=2**34, available_bytes=2**33, disks=(), gpus=gpus)


def figures(**changes: Any) -> Figures:
    fits = {kind: alpha_beta(kind, 2, [(size, seconds(kind, size, 2)) for size in SIZES]) for kind in COLLECTIVES}
    values: dict[str, Any] = {
        "processes": 2,
        "threads": 1,
        "torch": "2.13.0",
        "device_memory_bytes": None,
        "matmul": {"fp32": {"512": 1e11, "2048": 9e10}, "bf16": {"512": 2e11, "2048": 1.9e11}},
        "copy_bytes_per_second": 3e10,
        "host_to_device_bytes_per_second": None,
        "collectives": fits,
    }
    return Figures(**(values | changes))


REQUEST = """
model: {architecture: {hidden_size: 256, num_hidden_layers: 2, num_attention_heads: 4, intermediate_size: 512,
        vocab_size: 4096}}
cluster: {device: ./probe.yaml}
training: {sequence_length: 64, global_batch_size: 4, precision: fp32, attention: sdpa}
backend: fsdp
constraints: {zero_stage: 3, tensor_parallel: 1, context_parallel: 1, pipeline_parallel: 1}
"""


def ask(folder: Path, memory_bytes: int) -> PlanRequest:
    pool = pool_of(node(), figures(), name="lab-cpu", memory_bytes=memory_bytes)
    write_pool(Probe(node=node(), figures=figures(), pool=pool), folder / "probe.yaml")
    (folder / "request.yaml").write_text(REQUEST, encoding="utf-8")
    return PlanRequest.read(load_request(folder / "request.yaml"))


def test_a_request_names_the_file_and_gets_that_node(tmp_path: Path) -> None:
    pool = resolve(ask(tmp_path, 2**30)).cluster.pools[0]
    assert (pool.device.name, pool.device.kind, pool.gpus) == ("lab-cpu", "cpu", 2)
    assert pool.device.usable_memory_bytes == 2**30
    assert pool.device.peak_flops == {"fp32": 1e11, "bf16": 2e11}
    assert pool.device.matmul_flops_measured == {"fp32": 9e10, "bf16": 1.9e11}
    assert pool.intra_node_link.bandwidth == pytest.approx(RATE)
    assert pool.intra_node_link.latency_seconds == pytest.approx(ALPHA)


def test_the_pool_carries_the_rate_of_every_collective() -> None:
    slow = alpha_beta("reduce_scatter", 2, [(size, 2 * seconds("reduce_scatter", size, 2)) for size in SIZES])
    of = figures(collectives=figures().collectives | {"reduce_scatter": slow})
    link = pool_of(node(), of, name="lab-cpu", memory_bytes=2**30)["intra_node_link"]
    assert link["reduce_scatter_rate"] == pytest.approx(0.5)
    assert (link["all_gather_rate"], link["all_to_all_rate"]) == (1.0, 1.0)


def test_planning_for_two_processes_obeys_the_cap_of_each(tmp_path: Path) -> None:
    made = plan(ask(tmp_path, 2**29))
    assert made.status == "optimal"
    assert made.configuration is not None
    assert made.configuration.world_size == 2
    assert made.prediction is not None
    assert made.prediction.memory.conservative_bytes <= 2**29
    assert plan(ask(tmp_path, 2**23)).status == "infeasible"


def test_numbers_beside_the_file_win(tmp_path: Path) -> None:
    ask(tmp_path, 2**30)
    text = REQUEST.replace("{device: ./probe.yaml}", "{pools: [{device: probe.yaml, gpus_per_node: 4}]}")
    (tmp_path / "request.yaml").write_text(text, encoding="utf-8")
    assert resolve(PlanRequest.read(load_request(tmp_path / "request.yaml"))).cluster.gpus == 4


def test_the_service_takes_what_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []

    def post(service: str, path: str, body: dict[str, Any], *, idempotency_key: str) -> None:
        order = DeviceOrder if path == "/v1/devices" else ClusterOrder
        sent.append((service, path, order.model_validate(body), idempotency_key))

    monkeypatch.setattr(probing, "post", post)
    pool = pool_of(node(), figures(), name="lab-cpu", memory_bytes=2**30)
    for _ in range(2):
        probing.register(Probe(node=node(), figures=figures(), pool=pool), "http://s", device="lab-cpu", cluster="lab")
    assert sent[:2] == sent[2:], "asked again, it is the same"
    (device, cluster), keys = (one[2] for one in sent[:2]), {one[3] for one in sent}
    assert (device.name, device.device.name, device.gpus_per_node) == ("lab-cpu", "lab-cpu", 2)
    assert device.intra_node_link.measured
    assert (cluster.name, cluster.pools[0].device) == ("lab", "lab-cpu")
    assert len(keys) == 2


def a_gpu(name: str) -> Gpu:
    return Gpu(name=name, memory_bytes=80 * 2**30, driver="580", pcie_generation=4, pcie_width=16, nvlinks=12)


def test_a_known_gpu_keeps_its_peaks_and_gets_what_was_measured() -> None:
    measured = figures(device_memory_bytes=79 * 2**30)
    pool = pool_of(node(a_gpu("NVIDIA A100-SXM4-80GB")), measured, name="x", memory_bytes=None)
    assert pool["device"]["name"] == "a100-sxm-80gb"
    assert pool["device"]["usable_memory_bytes"] == 79 * 2**30
    assert pool["device"]["matmul_flops_measured"] == {"fp32": 1e11, "bf16": 2e11}
    assert pool["device"]["peak_flops"]["bf16"] == 3.12e14


def test_an_unknown_gpu_is_not_guessed() -> None:
    with pytest.raises(ProbeFailed, match="adding-a-device"):
        pool_of(node(a_gpu("NVIDIA X999")), figures(), name="x", memory_bytes=None)


def test_this_node_is_read() -> None:
    here = read_node()
    assert here.cores >= 1
    assert 0 < here.available_bytes <= here.memory_bytes
    assert here.disks[0].path == "/"


def test_gpus_are_read_through_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml: Any = types.ModuleType("pynvml")
    nvml.NVMLError = type("NVMLError", (Exception,), {})
    nvml.NVML_NVLINK_MAX_LINKS = 3
    nvml.nvmlInit = nvml.nvmlShutdown = lambda: None
    nvml.nvmlSystemGetDriverVersion = lambda: b"580.1"
    nvml.nvmlDeviceGetCount = lambda: 1
    nvml.nvmlDeviceGetHandleByIndex = lambda index: index
    nvml.nvmlDeviceGetName = lambda handle: "NVIDIA L40S"
    nvml.nvmlDeviceGetMemoryInfo = lambda handle: types.SimpleNamespace(total=46 * 2**30)
    nvml.nvmlDeviceGetMaxPcieLinkGeneration = lambda handle: 4

    def unsupported(*_: Any) -> int:
        raise nvml.NVMLError

    nvml.nvmlDeviceGetMaxPcieLinkWidth = nvml.nvmlDeviceGetNvLinkState = unsupported
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    (gpu,), notes = read_gpus()
    assert (gpu.name, gpu.driver, gpu.pcie_generation, gpu.pcie_width, gpu.nvlinks) == (
        "NVIDIA L40S", "580.1", 4, None, 0
    )  # fmt: skip
    assert notes == ()
