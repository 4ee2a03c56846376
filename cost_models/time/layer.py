"""One layer and micro-batch: forward, backward and recomputed forward, with what runs beside them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cost_models.parameters import layer_weights
from cost_models.specs.choices import RECOMPUTES
from cost_models.specs.model import LayerKind
from cost_models.time import elementwise, launch
from cost_models.time.adapters import adapter_seconds, trained_layer_weights
from cost_models.time.attention import core_seconds
from cost_models.time.collectives import ring_exchange_seconds, tensor_parallel_seconds
from cost_models.time.data_parallel import Local, gathers_per_pass, local, reduces_per_micro_batch, traffic
from cost_models.time.frame import Frame, once, overlapped
from cost_models.time.gemm import backward_passes, linear_flops, matmul_seconds, sustained_rate
from cost_models.time.moe import expert_seconds
from cost_models.time.offload import activation_copy_seconds, parameter_fetch_seconds
from cost_models.time.work import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """Seconds of one pass over a layer. All but `hidden` and `launch` is device time, one after the other."""

    compute: Any
    attention: Any
    elementwise: Any
    tensor_parallel: Any
    context_parallel: Any
    expert_parallel: Any
    launch: Any
    hidden_context: Any
    hidden_expert: Any

    @property
    def kernels(self) -> Any:
        """Compute without communication. [s]"""
        return self.compute + self.attention + self.elementwise

    @property
    def device(self) -> Any:
        """Everything the device works through. [s]"""
        return self.kernels + self.tensor_parallel + self.context_parallel + self.expert_parallel


def reductions(frame: Frame, kind: LayerKind) -> Any:
    """Tensor-parallel all-reduces of one pass: after attention, and after a feed-forward block split over ranks.

    Experts that are not split over tensor-parallel ranks exchange tokens by all-to-all instead.
    """
    return 2.0 if kind.mlp == "dense" else 1.0 + np.where(frame.etp > 1, 1.0, 0.0)


@once
def passes(frame: Frame, kind: LayerKind) -> tuple[Pass, Pass]:
    """Forward and backward of one layer, nothing recomputed."""
    rate = sustained_rate(frame)
    core, experts = core_seconds(frame, kind), expert_seconds(frame, kind)
    linear = matmul_seconds(linear_flops(frame, kind), rate)
    adapters = adapter_seconds(frame, kind)
    streamed, cast = elementwise.forward_seconds(frame, kind), elementwise.cast_seconds(frame, kind)
    again = elementwise.dequantization_seconds(frame, kind) + experts.permute
    tensor = tensor_parallel_seconds(frame, reductions(frame, kind))
    ring, all_share = ring_exchange_seconds(frame), np.where(frame.overlap, 0.0, 1.0)
    ring_share = np.maximum(frame.factor("ring_exposed"), all_share)
    ring_forward, hidden_forward = overlapped(core.forward, ring, ring_share, 0.0)
    # Keys and values travel again, and their gradients with them.
    ring_backward, hidden_backward = overlapped(core.backward, 2 * ring, ring_share, 0.0)
    exposed_experts = np.maximum(frame.factor("all_to_all_exposed"), all_share) * experts.all_to_all
    issue = launch.pass_seconds(frame, kind) + core.launch
    times = backward_passes(frame)
    forward = Pass(
        compute=linear + experts.gemm + adapters,
        attention=core.forward,
        elementwise=streamed + cast + again,
        tensor_parallel=tensor,
        context_parallel=ring_forward,
        expert_parallel=exposed_experts,
        launch=issue,
        hidden_context=hidden_forward,
        hidden_expert=experts.all_to_all - exposed_experts,
    )
    backward = Pass(
        compute=times * (linear + experts.gemm) + 2 * adapters,
        attention=core.backward,
        elementwise=elementwise.backward_factor(frame) * streamed + 2 * cast + again,
        tensor_parallel=tensor,
        context_parallel=ring_backward,
        expert_parallel=exposed_experts,
        launch=launch.backward_launch_factor(frame) * issue,
        hidden_context=hidden_backward,
        hidden_expert=experts.all_to_all - exposed_experts,
    )
    return forward, backward


def layer_works(frame: Frame, kind: LayerKind) -> tuple[Work, ...]:
    """Work of one layer and micro-batch by recompute mode, in the order of RECOMPUTES."""
    return tuple(layer_work(frame, kind, mode) for mode in RECOMPUTES)


@once
def layer_work(frame: Frame, kind: LayerKind, mode: str) -> Work:
    """Work of one layer and micro-batch under one recompute mode."""
    (forward, backward), streams = passes(frame, kind), _streams(frame, kind)
    again = repeated(frame, forward, mode)
    return _work(frame, forward, backward, again, streams, activation_copy_seconds(frame))


@once
def _streams(frame: Frame, kind: LayerKind) -> "Streams":
    return Streams.of(frame, layer_parameters(frame, kind), trained_parameters(frame, kind))


@once
def layer_parameters(frame: Frame, kind: LayerKind) -> Local:
    """Parameters of one layer on one rank. [parameters]"""
    return local(frame, layer_weights(frame.model, kind))


@once
def trained_parameters(frame: Frame, kind: LayerKind) -> Local:
    """Those of them that are trained, or the adapters beside them. [parameters]"""
    return local(frame, trained_layer_weights(frame, kind)) if frame.adapters else layer_parameters(frame, kind)


@dataclass(frozen=True, slots=True)
class Streams:
    """Sharded parameters and gradients moving beside a layer's forward and backward. [s]"""

    forward: Any
    backward: Any
    fetch: Any

    @classmethod
    def of(cls, frame: Frame, weights: Local, trained: Local) -> "Streams":
        """Gathers of `weights` before a pass and reductions of the gradients of `trained` after it."""
        cost = traffic(frame, weights, trained)
        gathers_forward, gathers_backward = gathers_per_pass(frame)
        return cls(
            forward=gathers_forward * cost.gather,
            backward=gathers_backward * cost.gather + reduces_per_micro_batch(frame) * cost.reduce,
            fetch=parameter_fetch_seconds(frame, weights),
        )

    def beside(self, frame: Frame, forward: Any, backward: Any) -> "tuple[Any, Any, Any, Any]":
        """Exposed and hidden data-parallel seconds, exposed and hidden copies, given busy forward and backward. [s]"""
        serial = np.where(frame.overlap, 0.0, 1.0)
        share = np.maximum(frame.by_backend("sharded_exposed"), serial)
        kappa = frame.factor("overlap_contention")
        first, first_hidden = overlapped(forward, self.forward, share, kappa)
        second, second_hidden = overlapped(backward, self.backward, share, kappa)
        fetched, fetched_hidden = overlapped(forward, self.fetch, share, 0.0)
        again, again_hidden = overlapped(backward, self.fetch, share, 0.0)
        return first + second, first_hidden + second_hidden, fetched + again, fetched_hidden + again_hidden


def repeated(frame: Frame, forward: Pass, mode: str) -> Pass | None:
    """The part of the forward that the backward repeats, its communication included; None when nothing is.

    Full recompute runs the whole forward again with its tensor-parallel reductions. Selective recompute repeats the
    attention core in Megatron (arXiv:2205.05198 section 5) and a share of the operators elsewhere.
    """
    if mode == "none":
        return None
    if mode == "full":
        return forward
    core_only = frame.backend_is("megatron", "megatron-deepspeed")
    share = np.where(core_only, 0.0, frame.factor("selective_recompute_share"))
    core = np.where(core_only, 1.0, share)
    launched = np.where(core_only, frame.factor("selective_recompute_launch"), share)
    return Pass(
        compute=share * forward.compute,
        attention=core * forward.attention,
        elementwise=share * forward.elementwise,
        tensor_parallel=0.0,
        context_parallel=core * forward.context_parallel,
        expert_parallel=0.0,
        launch=launched * forward.launch,
        hidden_context=core * forward.hidden_context,
        hidden_expert=0.0,
    )


def _work(frame: Frame, forward: Pass, backward: Pass, again: Pass | None, streams: Streams, copy: Any) -> Work:
    parts = [forward, backward] + ([again] if again is not None else [])
    forward_busy = np.maximum(forward.device, forward.launch)
    backward_device = backward.device + (again.device if again is not None else 0.0)
    backward_launch = backward.launch + (again.launch if again is not None else 0.0)
    backward_busy = np.maximum(backward_device, backward_launch)
    gathered, gathered_hidden, fetched, fetched_hidden = streams.beside(frame, forward_busy, backward_busy)
    share = np.maximum(frame.factor("activation_offload_exposed"), np.where(frame.overlap, 0.0, 1.0))
    down, down_hidden = overlapped(forward_busy, copy, share, 0.0)
    up, up_hidden = overlapped(backward_busy, copy, share, 0.0)
    return Work(
        exposed={
            "compute": forward.compute + backward.compute,
            "attention": forward.attention + backward.attention,
            "elementwise": forward.elementwise + backward.elementwise,
            "launch_floor": (forward_busy - forward.device) + (backward_busy - backward_device),
            "recompute": again.kernels if again is not None else 0.0,
            "tensor_parallel": sum((p.tensor_parallel for p in parts), 0.0),
            "context_parallel": sum((p.context_parallel for p in parts), 0.0),
            "expert_parallel": sum((p.expert_parallel for p in parts), 0.0),
            "data_parallel": gathered,
            "offload": fetched + down + up,
        },
        hidden={
            "context_parallel": sum((p.hidden_context for p in parts), 0.0),
            "expert_parallel": sum((p.hidden_expert for p in parts), 0.0),
            "data_parallel": gathered_hidden,
            "offload": fetched_hidden + down_hidden + up_hidden,
        },
    )
