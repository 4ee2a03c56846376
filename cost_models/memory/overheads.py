"""What no tensor of the model accounts for: gathered weights, buckets, communicators, context, workspaces."""

from typing import Any

import numpy as np

from cost_models.arrays import Array, choose
from cost_models.calibration import Calibration
from cost_models.memory.setting import Setting, Terms, once
from cost_models.memory.sharding import Held


@once
def gathering(setting: Setting, style: str) -> Any:
    """Whether a candidate gathers sharded weights in the given style: 1 or 0."""
    sharded = setting.column("zero_stage") >= setting.fact("weights_sharded_from")
    return choose(sharded & setting.says("gather_style", style), 1.0, 0.0)


@once
def kept_gathered(setting: Setting) -> Any:
    """Whether every layer stays gathered from forward to backward: stage 2 of back ends that shard weights from there.
    Whether every layer stays gathered from forward to backward: stage 2 of back ends that shard weights from there.
    """
    return gathering(setting, "root_group") * choose(setting.column("zero_stage") == 2, 1.0, 0.0)


def gathered_bytes(setting: Setting, held: Held) -> Any:
    """Weights of one layer, or of the root group, gathered in the compute dtype. [bytes]"""
    if setting.quantized:
        return setting.compute * held.frozen + setting.module("adapter_layout", "weight") * held.adapter
    return setting.compute * (held.base + held.adapter + held.module)


def budget_parameters(setting: Setting, layers: tuple[Held, ...], whole: Array) -> Any:
    """Gathered parameters that DeepSpeed's ZeRO-3 keeps: its budget, never more than all, never less than two layers.
    [parameters]

    Source: deepspeed `runtime/zero/partitioned_param_coordinator.py` (max_available_parameters_in_numel).
    """
    largest: Any = 0.0
    for held in layers:
        largest = np.maximum(largest, held.base)
    return np.minimum(np.maximum(setting.fact("live_parameters"), 2 * largest), whole)


def budget_bytes(setting: Setting, layers: tuple[Held, ...], whole: Array) -> Any:
    """Gathered weights that DeepSpeed's ZeRO-3 keeps. [bytes]"""
    return gathering(setting, "budget") * setting.compute * budget_parameters(setting, layers, whole)


def prefetched_bytes(setting: Setting, whole: Array) -> Any:
    """The message that several weights are gathered in at once, which lives on beside them until the last is used.

    Source: deepspeed `runtime/zero/partition_parameters.py`, _all_gather_dtype and AllGatherCoalescedHandle.wait;
    `runtime/zero/partitioned_param_coordinator.py`, __inflight_param_registry. [bytes]
    """
    return gathering(setting, "budget") * setting.compute * np.minimum(setting.fact("prefetch_parameters"), whole)


def small_bytes(setting: Setting, held: Held) -> Any:
    """Small tensors that stay whole on every rank. [bytes]"""
    return gathering(setting, "budget") * setting.compute * held.small


def bucket_parameters(setting: Setting, trained: Array) -> Any:
    """Size of one reduce bucket, no larger than what is trained. [parameters]

    DeepSpeed allocates all of `reduce_bucket_size` whatever the model's size; a plan sets it to what is counted here.
    """
    return np.minimum(setting.fact("bucket_parameters"), trained)


@once
def keeps_buckets(setting: Setting) -> Any:
    """Whether the bucket exists from initialisation on, as where weights are sharded: 1 or 0.

    Source: deepspeed `runtime/zero/stage3.py`, _setup_for_real_optimizer.
    """
    sharded = setting.column("zero_stage") >= setting.fact("weights_sharded_from")
    return choose(sharded & (setting.fact("bucket_copies_sharded") > 0), 1.0, 0.0)


def bucket_bytes(setting: Setting, trained: Array) -> Any:
    """Reduce buckets of the sharded optimizer while gradients are reduced. [bytes]

    Overlapping communication fills one while another is reduced; where weights are sharded there is but one.
    Source: deepspeed `runtime/zero/stage_1_and_2.py`, setup_buckets; `runtime/zero/stage3.py`.
    """
    several = choose(setting.column("zero_stage") >= 1, 1.0, 0.0)
    overlap = choose(setting.column("communication_overlap") > 0, setting.fact("bucket_copies"), 1.0)
    overlap = np.minimum(overlap, setting.fact("bucket_copies"))
    copies = choose(keeps_buckets(setting) > 0, setting.fact("bucket_copies_sharded"), overlap)
    return several * copies * setting.compute * bucket_parameters(setting, trained)


@once
def buckets_linger(setting: Setting) -> Any:
    """Whether the buckets of one micro-batch are still there at the loss of the next: 1 or 0.

    ZeRO-1 reduces, and frees its buckets, after the last micro-batch only.
    Source: deepspeed `runtime/engine.py`, allreduce_gradients; `runtime/zero/stage_1_and_2.py`, setup_buckets.
    """
    several = (setting.column("gradient_accumulation_steps") > 1) & (setting.column("pipeline_parallel") == 1)
    whole = setting.column("zero_stage") < setting.fact("gradients_sharded_from")
    return choose(several & whole & (setting.fact("flattened_gradients") > 0), 1.0, 0.0)


@once
def flattened_copies(setting: Setting) -> Any:
    """Further copies of a rank's gradient shard at the end of backward, where a flat one is made beside the tensors'.

    Source: deepspeed `runtime/zero/stage_1_and_2.py`, independent_gradient_partition_epilogue.
    """
    zero = setting.column("zero_stage")
    shards = zero >= setting.fact("gradients_sharded_from")
    flattens = shards & (zero < setting.fact("weights_sharded_from")) & ~setting.offloads_gradients
    return choose(flattens, setting.fact("flattened_gradients"), 0.0)


@once
def accumulated_copies(setting: Setting) -> Any:
    """Copies of a rank's gradient shard in backward: its own and, where micro-batches are added up, the sum so far.

    Source: deepspeed `runtime/zero/stage_1_and_2.py`, all_grad_tensors.
    """
    several = setting.column("gradient_accumulation_steps") > 1
    return 1.0 + choose(several, np.minimum(flattened_copies(setting), 1.0), 0.0)


def workspace_terms(setting: Setting, calibration: Calibration) -> Terms:
    """Kernel workspaces inside the caching allocator, larger in deterministic mode; none on a CPU. [bytes]

    Transformer Engine's grouped expert products have one more per stream.
    Source: Transformer Engine `pytorch/cpp_extensions/gemm.py`, get_multi_stream_cublas_workspace (4 streams).
    """
    device = setting.job.device
    if device.kind == "cpu":
        return {}
    plain = calibration("workspace", device.family, "any")
    deterministic = calibration("workspace_deterministic", device.family, "any")
    tested = calibration("workspace_functional_test", device.family, "any")
    size = choose(setting.fact("functional_test") > 0, tested, plain)
    size = choose(setting.fact("deterministic") > 0, deterministic, size)
    if any(kind.mlp == "moe" for kind in setting.kinds):
        size = size + choose(setting.eager, 0.0, calibration("workspace_grouped", device.family, "any"))
    return {"workspaces": size}


def context_bytes(setting: Setting, calibration: Calibration) -> Any:
    """The driver's context, outside the allocator; none on a CPU. [bytes]

    Source: CUDA C++ Programming Guide, lazy loading (CUDA_MODULE_LOADING).
    """
    device = setting.job.device
    if device.kind == "cpu":
        return 0.0
    lazy, eager = calibration("context", device.family, "any"), calibration("context_eager", device.family, "any")
    return choose(setting.fact("eager_module_loading") > 0, eager, lazy)


def communicator_bytes(setting: Setting, calibration: Calibration) -> Any:
    """Buffers of one communicator per process group, more for an all-to-all. [bytes]

    A framework may use further groups: of the whole model (gradient norm, overflow check) and of all ranks.
    Groups: tensor, context, data (with context), expert and pipeline parallel, each where it has two ranks or more.
    Source: NVIDIA/nccl issue 964 (pairs and larger groups), issue 1685 (first all-to-all).
    """
    s = setting.strategy
    if setting.job.device.kind == "cpu":
        return np.zeros_like(setting.tensor)
    pair, group = calibration("communicator.pair"), calibration("communicator.group")
    exchange = calibration("communicator.all_to_all_peer")

    def one(size: Any) -> Any:
        size = np.asarray(size, dtype=np.float64)[()]
        return choose(size > 2, group, choose(size > 1, pair, 0.0))

    data = s.data_parallel * s.context_parallel
    context = choose(setting.column("data_parallel") > 1, s.context_parallel, 1)
    total = one(s.tensor_parallel) + one(data) + one(context) + one(s.pipeline_parallel) + one(s.expert_parallel)
    total = total + setting.fact("model_group") * one(s.tensor_parallel * s.pipeline_parallel)
    total = total + setting.fact("world_group") * one(s.world_size)
    peers = np.minimum(setting.column("expert_parallel"), setting.job.pool.gpus_per_node) - 1
    return total + exchange * peers
