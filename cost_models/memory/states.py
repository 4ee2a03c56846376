"""Weights, gradients and optimizer states: bytes of one rank, by term.

    states of a rank = (weight + gradient + master + states) bytes x parameters, each over its ZeRO shards

Source: ZeRO, arXiv:1910.02054, section 5: (2 + 2 + K) Psi, with K = 12 for mixed-precision Adam.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cost_models.arrays import Array, choose, somewhere
from cost_models.memory.setting import Setting, Terms, divisor, once, scaled, total
from cost_models.memory.sharding import Held
from cost_models.parameters import total_parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """Terms of some parameters, apart because each exists at other instants."""

    weights: Terms
    gradients: Terms
    optimizer: Terms
    step: Terms
    """While the optimizer runs."""
    buffers: Terms
    """Buckets and residuals that exist from the first backward on."""
    optimizer_total: Array
    """Bytes of the optimizer states alone, wherever they are."""
    saved_by_offload: Array
    """What moving the optimizer of these parameters to the host frees on the device."""
    trained_shard: Array
    """Trained parameters of the rank after sharding, as the host optimizer counts them. [parameters]"""


def weight_bytes(setting: Setting, held: Held) -> Terms:
    """Weights between steps. Offloaded parameters live on the host. [bytes]"""
    shared = divisor(setting, "weights_sharded_from")
    expert = divisor(setting, "weights_sharded_from", expert=True)
    resident = choose(setting.column("parameter_offload") > 0, 0.0, 1.0)
    if setting.adapters is None:
        size = setting.layout("weight")
        return {"weights": resident * size * (held.trained / shared + held.expert / expert)}
    adapter, module = _adapter_bytes(setting, "weight"), setting.module("module_layout", "weight")
    if setting.quantized:  # a trained module is a copy of one that was prepared in fp32
        module = np.maximum(module, _quantized(setting, "other"))
    terms: Terms = {}
    if setting.quantized:
        stored = _quantized(setting, "double" if setting.adapters.double_quantization else "single")
        sharded = setting.fact("shards_quantized") > 0
        on = choose(sharded, resident / shared, 1.0)
        experts_on = choose(sharded, resident / expert, 1.0)
        terms["weights"] = resident * _quantized(setting, "other") * held.frozen / shared
        terms["four_bit_weights"] = stored * (held.frozen_linear * on + held.frozen_expert * experts_on)
    else:
        frozen = (held.frozen + held.frozen_linear) / shared + held.frozen_expert / expert
        terms["weights"] = resident * setting.compute * frozen
    terms["lora_adapters"] = adapter * held.adapter / shared
    terms["trainable_embeddings"] = module * held.module / shared
    return terms


def _quantized(setting: Setting, name: str) -> Any:
    return np.array([getattr(f.quantized, name) for f in setting.frameworks])[setting.strategy.backend]


def _adapter_bytes(setting: Setting, name: str) -> Any:
    """Bytes of an adapter parameter: fp32 under peft, or the model's compute dtype."""
    assert setting.adapters is not None
    full = setting.module("adapter_layout", name)
    return full if setting.adapters.adapter_dtype == "fp32" else setting.compute


def gradient_bytes(setting: Setting, held: Held) -> Terms:
    """Accumulated gradients of all trained parameters, and of those that share a flat one with them. [bytes]"""
    shared = choose(setting.whole_gradients, 1.0, divisor(setting, "gradients_sharded_from"))
    expert = choose(setting.whole_gradients, 1.0, divisor(setting, "gradients_sharded_from", expert=True))
    if setting.adapters is None:
        return {"gradients": setting.layout("gradient") * (held.trained / shared + held.expert / expert)}
    module = setting.module("module_layout", "gradient")
    size = _adapter_bytes(setting, "gradient") * held.adapter + module * held.module
    if somewhere(setting.flat):
        beside = choose(setting.flat & (held.adapter > 0), setting.compute * held.base, 0.0)
        size = size + beside
    return {"gradients": size / shared}


def optimizer_bytes(setting: Setting, held: Held) -> Terms:
    """Master weights and optimizer states. [bytes]"""
    shared = divisor(setting, "optimizer_sharded_from")
    expert = divisor(setting, "optimizer_sharded_from", expert=True)
    matrix, other = setting.optimizer("states"), setting.optimizer("states_other")
    fixed, factored = setting.optimizer("fixed_bytes"), setting.optimizer("factored")
    if setting.adapters is not None:
        adapter = matrix * _adapter_bytes(setting, "state") + fixed
        module = other * setting.module("module_layout", "state") + fixed
        return {"optimizer_states": (adapter * held.adapter + module * held.module) / shared}
    state, master = setting.layout("state"), setting.layout("master") + _copied_master(setting)
    per_parameter = master + fixed + matrix * state
    result = per_parameter * (held.trained / shared + held.expert / expert)
    result = result + (other - matrix) * state * held.other / shared
    return {"optimizer_states": result + factored * 4.0 * held.factors / shared}


@once
def _copied_master(setting: Setting) -> Any:
    """A copy of fp32 weights beside them: a sharded optimizer updates one whatever the weights are in.

    ZeRO-3 means to do without one on the optimizer's device, but compares that device with the name of one.
    Source: deepspeed `runtime/zero/stage_1_and_2.py`, single_partition_of_fp32_groups; `runtime/zero/stage3.py`,
    _create_fp32_partitions (0.19.8). [bytes per parameter]
    """
    sharded = setting.column("zero_stage") >= setting.fact("optimizer_sharded_from")
    return choose(sharded, setting.layout("copied_master"), 0.0)


def step_bytes(setting: Setting, held: Held) -> Terms:
    """What exists only while the optimizer runs: foreach copies, fp32 copies of gradients. [bytes]"""
    shared = divisor(setting, "optimizer_sharded_from")
    expert = divisor(setting, "optimizer_sharded_from", expert=True)
    copies = setting.fact("step_parameter_copies")
    if setting.adapters is not None:
        return {"step_temporaries": copies * _adapter_bytes(setting, "weight") * held.adapter / shared}
    gradient = setting.layout("step_gradient") + _flattened_for_step(setting)
    size = copies * setting.layout("weight") + gradient * _in_one_step(setting)
    return {"step_temporaries": size * (held.trained / shared + held.expert / expert)}


@once
def _flattened_for_step(setting: Setting) -> Any:
    """Flat copies that a step makes of its gradients: of the shard before it is cast, of whole ones after it.

    On a CPU the optimizer is torch's, for which DeepSpeed casts without flattening. [bytes per parameter]

    Source: deepspeed `runtime/zero/stage_1_and_2.py`, step; `runtime/zero/stage3.py`,
    _prepare_fp32_grad_for_sub_group; `runtime/fp16/fused_optimizer.py` and `unfused_optimizer.py`, step.
    """
    sharded = setting.column("zero_stage") >= setting.fact("optimizer_sharded_from")
    device = choose(setting.fact("flattened_casts") > 0, setting.layout("step_gradient"), 0.0)
    whole = 0.0 if setting.job.device.kind == "cpu" else device
    flat = choose(setting.offloads_gradients, 0.0, setting.fact("flattened_gradients") * setting.layout("gradient"))
    return choose(sharded, flat, whole)


@once
def _in_one_step(setting: Setting) -> Any:
    """Share of a rank's gradients whose fp32 copies exist at once: DeepSpeed's ZeRO-3 steps one sub-group at a time.

    Source: deepspeed `runtime/zero/stage3.py`, step: _prepare_sub_group, _release_sub_group; sub_group_size.
    """
    s, limit = setting.strategy, setting.fact("step_parameters")
    grouped = (setting.column("zero_stage") >= setting.fact("weights_sharded_from")) & (limit > 0)
    if not somewhere(grouped):
        return 1.0
    held = total_parameters(setting.model) / (setting.tensor * s.pipeline_parallel * setting.shards)
    return choose(grouped, np.minimum(limit / held, 1.0), 1.0)


def buffer_bytes(setting: Setting, held: Held) -> Terms:
    """Gradient copies in communication buckets and residuals of compressed gradients. [bytes]"""
    several = choose(setting.shards > 1, 1.0, 0.0)
    trained = held.trained + held.expert + held.adapter + held.module
    layout = setting.layout("reduce") if setting.adapters is None else _adapter_bytes(setting, "reduce")
    residual = setting.compression_error + setting.optimizer("error_feedback")
    return {
        "buckets": several * setting.fact("gradient_bucket_copies") * layout * trained,
        "error_feedback": several * residual * trained,
    }


def cast_bytes(setting: Setting, held: Held) -> Any:
    """Copies of weights that live from forward to backward: in another dtype, or with their adapters added. [bytes]

    Source: peft `tuners/lora/layer.py`, ParamWrapper._activate_lora (expert tensors, and their factors in its dtype).
    """
    return setting.layout("cast") * (held.trained + held.expert) + setting.compute * held.expanded


def states(setting: Setting, held: Held, *, end: bool = False) -> States:
    """Every term of some parameters. An `end`, embedding or head, goes to the host where offloading takes all."""
    kept = choose(setting.offloads_ends, 0.0, 1.0) if end else 1.0
    paged = 0.0 if setting.job.training.optimizer_paged else 1.0  # a device that is short of memory holds none
    gradients, optimizer = gradient_bytes(setting, held), optimizer_bytes(setting, held)
    step = step_bytes(setting, held)
    shared = divisor(setting, "optimizer_sharded_from")
    expert = divisor(setting, "optimizer_sharded_from", expert=True)
    with_gradients = choose(setting.offloads_gradients, 1.0, 0.0) * (total(gradients) + total(step))
    return States(
        weights=weight_bytes(setting, held),
        gradients=scaled(gradients, kept),
        optimizer=scaled(optimizer, kept * paged),
        step=scaled(step, kept),
        buffers=buffer_bytes(setting, held),
        optimizer_total=total(optimizer),
        saved_by_offload=total(optimizer) * paged + with_gradients,
        trained_shard=(held.trained + held.adapter + held.module) / shared + held.expert / expert,
    )
