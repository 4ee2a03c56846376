"""One layer and micro-batch: forward, backward and recomputed forward, with what runs beside them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cost_models.arrays import choose
from cost_models.parameters import layer_weights
from cost_models.specs.choices import RECOMPUTES
from cost_models.specs.model import LayerKind
from cost_models.time import alike, elementwise, launch
from cost_models.time.adapters import adapter_seconds, trained_layer_weights
from cost_models.time.attention import core_seconds
from cost_models.time.collectives import ring_exchange_seconds
from cost_models.time.data_parallel import Cover, Local, gathers_per_pass, local, reduces_per_micro_batch, traffic
from cost_models.time.frame import Frame, once, once_for, overlapped
from cost_models.time.gemm import backward_passes, linear_flops, matmul_seconds, sustained_rate
from cost_models.time.moe import expert_seconds
from cost_models.time.offload import activation_copy_seconds, parameter_fetch_seconds
from cost_models.time.optimizer import accumulation_seconds
from cost_models.time.tensor_parallel import backward_seconds, reduction_seconds, reductions
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
    hidden_tensor: Any
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

    @property
    def communication(self) -> Any:
        """Exposed, which covers nothing, and hidden, whose cover is taken. [s]"""
        exposed = self.tensor_parallel + self.context_parallel + self.expert_parallel
        return exposed + self.hidden_tensor + self.hidden_context + self.hidden_expert


@once
def passes(frame: Frame, kind: LayerKind) -> tuple[Pass, Pass]:
    """Forward and backward of one layer, nothing recomputed."""
    rate = sustained_rate(frame)
    core, experts = core_seconds(frame, kind), expert_seconds(frame, kind)
    linear = matmul_seconds(linear_flops(frame, kind), rate)
    adapters = adapter_seconds(frame, kind)
    streamed, cast = elementwise.forward_seconds(frame, kind), elementwise.cast_seconds(frame, kind)
    again = elementwise.dequantization_seconds(frame, kind) + experts.permute
    tensor = reduction_seconds(frame, reductions(frame, kind))
    tensor_backward, hidden_tensor = backward_seconds(frame, kind)
    ring, all_share = ring_exchange_seconds(frame), choose(frame.overlap, 0.0, 1.0)
    ring_share = np.maximum(frame.factor("ring_exposed"), all_share)
    ring_forward, hidden_forward = overlapped(core.forward, ring, ring_share, 0.0)
    # Keys and values travel again, and their gradients with them.
    ring_backward, hidden_backward = overlapped(core.backward, 2 * ring, ring_share, 0.0)
    beside = frame.overlap & (frame.column("expert_overlap") > 0)
    expert_share = choose(beside, frame.factor("all_to_all_exposed"), 1.0)
    issue = launch.pass_seconds(frame, kind) + core.launch
    times = backward_passes(frame)
    products, gradients = linear + experts.gemm + adapters, times * (linear + experts.gemm) + 2 * adapters
    first = streamed + cast + again
    summed = accumulation_seconds(frame, trained_parameters(frame, kind))
    second = elementwise.backward_factor(frame) * streamed + 2 * cast + again + summed
    # A rank computes on other tokens while some travel; what the ring hides behind is taken.
    free_forward = products + core.forward + first - hidden_forward
    free_backward = gradients + core.backward + second - hidden_backward - hidden_tensor
    experts_forward, hidden_out = overlapped(free_forward, experts.all_to_all, expert_share, 0.0)
    experts_backward, hidden_back = overlapped(free_backward, experts.all_to_all, expert_share, 0.0)
    forward = Pass(
        compute=products,
        attention=core.forward,
        elementwise=first,
        tensor_parallel=tensor,
        context_parallel=ring_forward,
        expert_parallel=experts_forward,
        launch=issue,
        hidden_tensor=0.0,
        hidden_context=hidden_forward,
        hidden_expert=hidden_out,
    )
    backward = Pass(
        compute=gradients,
        attention=core.backward,
        elementwise=second,
        tensor_parallel=tensor_backward,
        context_parallel=ring_backward,
        expert_parallel=experts_backward,
        launch=launch.backward_launch_factor(frame) * issue,
        hidden_tensor=hidden_tensor,
        hidden_context=hidden_backward,
        hidden_expert=hidden_back,
    )
    return forward, backward


def layer_works(frame: Frame, kind: LayerKind) -> tuple[Work, ...]:
    """Work of one layer and micro-batch by recompute mode, in the order of RECOMPUTES."""
    return tuple(layer_work(frame, kind, mode) for mode in RECOMPUTES)


@once
def layer_work(frame: Frame, kind: LayerKind, mode: str) -> Work:
    """Work of one layer and micro-batch under one recompute mode."""
    forward, backward = passes(frame, kind)
    again = repeated(frame, forward, mode)
    return _work(forward, backward, again, _beside(frame, kind, mode))


@once_for(alike.layers)
def layer_cover(frame: Frame, kind: LayerKind) -> Cover:
    """Compute of one layer and micro-batch, nothing recomputed, that covers no communication yet. [s]"""
    return _beside(frame, kind, "none").left


@once
def _beside(frame: Frame, kind: LayerKind, mode: str) -> "Beside":
    forward, backward = passes(frame, kind)
    again = repeated(frame, forward, mode)
    return _streams(frame, kind).beside(frame, Cover(_free(forward), _free(backward, again)))


def _busy(first: Pass, *others: Pass | None) -> Any:
    """Passes one after the other, which end when both the device and the host that launches are done. [s]"""
    every = (first, *(p for p in others if p is not None))
    return np.maximum(sum((p.device for p in every), 0.0), sum((p.launch for p in every), 0.0))


def _free(first: Pass, *others: Pass | None) -> Any:
    """What of passes is compute that covers no communication yet. [s]"""
    every = (first, *(p for p in others if p is not None))
    return _busy(*every) - sum((p.communication for p in every), 0.0)


@once
def _streams(frame: Frame, kind: LayerKind) -> "Streams":
    copy = activation_copy_seconds(frame)
    return Streams.of(frame, layer_parameters(frame, kind), trained_parameters(frame, kind), copy)


@once_for(alike.layers)
def layer_parameters(frame: Frame, kind: LayerKind) -> Local:
    """Parameters of one layer on one rank. [parameters]"""
    return local(frame, layer_weights(frame.model, kind))


@once_for(alike.layers)
def trained_parameters(frame: Frame, kind: LayerKind) -> Local:
    """Those of them that are trained, or the adapters beside them. [parameters]"""
    return local(frame, trained_layer_weights(frame, kind)) if frame.adapters else layer_parameters(frame, kind)


@dataclass(frozen=True, slots=True)
class Streams:
    """Sharded parameters and gradients moving beside a layer's forward and backward. [s]"""

    forward: Any
    backward: Any
    fetch: Any
    copy: Any

    @classmethod
    def of(cls, frame: Frame, weights: Local, trained: Local, copy: Any) -> "Streams":
        """Gathers of `weights` before a pass and reductions of the gradients of `trained` after it.

        `copy` are the seconds of moving activations to the host in the forward, and back in the backward.
        """
        cost = traffic(frame, weights, trained)
        gathers_forward, gathers_backward = gathers_per_pass(frame)
        return cls(
            forward=gathers_forward * cost.gather,
            backward=gathers_backward * cost.gather + reduces_per_micro_batch(frame) * cost.reduce,
            fetch=parameter_fetch_seconds(frame, weights),
            copy=copy,
        )

    def beside(self, frame: Frame, cover: Cover) -> "Beside":
        """Put the streams beside compute. Each second of it covers one second of one stream."""
        serial = choose(frame.overlap, 0.0, 1.0)
        share = np.maximum(frame.by_backend("sharded_exposed"), serial)
        copied = np.maximum(frame.factor("activation_offload_exposed"), serial)
        kappa = frame.factor("overlap_contention")

        def one(free: Any, collective: Any) -> tuple[Any, ...]:
            gathered, hidden = overlapped(free, collective, share, kappa)
            fetched, fetched_hidden = overlapped(free - hidden, self.fetch, share, 0.0)
            left = free - hidden - fetched_hidden
            moved, moved_hidden = overlapped(left, self.copy, copied, 0.0)
            return gathered, hidden, fetched + moved, fetched_hidden + moved_hidden, left - moved_hidden

        first, second = one(cover.forward, self.forward), one(cover.backward, self.backward)
        gathered, hidden, moved, moved_hidden, _ = (f + s for f, s in zip(first, second, strict=True))
        return Beside(gathered, hidden, moved, moved_hidden, Cover(first[-1], second[-1]))


@dataclass(frozen=True, slots=True)
class Beside:
    """Exposed and hidden seconds of `Streams`, and the compute that covers nothing after them. [s]"""

    data_parallel: Any
    data_parallel_hidden: Any
    offload: Any
    offload_hidden: Any
    left: Cover


def repeated(frame: Frame, forward: Pass, mode: str) -> Pass | None:
    """The part of the forward that the backward repeats, its communication included; None when nothing is.

    Full recompute runs the whole forward again with its tensor-parallel reductions. Selective recompute repeats the
    attention core in Megatron (arXiv:2205.05198 section 5) and a share of the operators elsewhere, where it keeps what
    was scattered over the sequence but gathers it again (torchtitan `distributed/activation_checkpoint.py`: the list of
    saved operators has reduce_scatter_tensor, no gather).
    """
    if mode == "none":
        return None
    if mode == "full":
        return forward
    core_only = frame.backend_is("megatron", "megatron-deepspeed")
    share = choose(core_only, 0.0, frame.factor("selective_recompute_share"))
    core = choose(core_only, 1.0, share)
    launched = choose(core_only, frame.factor("selective_recompute_launch"), share)
    gathered = choose(core_only | (frame.column("sequence_parallel") == 0), 0.0, 0.5)
    return Pass(
        compute=share * forward.compute,
        attention=core * forward.attention,
        elementwise=share * forward.elementwise,
        tensor_parallel=gathered * forward.tensor_parallel,
        context_parallel=core * forward.context_parallel,
        expert_parallel=0.0,
        launch=launched * forward.launch,
        hidden_tensor=0.0,
        hidden_context=core * forward.hidden_context,
        hidden_expert=0.0,
    )


def _work(forward: Pass, backward: Pass, again: Pass | None, beside: Beside) -> Work:
    parts = [forward, backward] + ([again] if again is not None else [])
    backward_device = backward.device + (again.device if again is not None else 0.0)
    return Work(
        exposed={
            "compute": forward.compute + backward.compute,
            "attention": forward.attention + backward.attention,
            "elementwise": forward.elementwise + backward.elementwise,
            "launch_floor": (_busy(forward) - forward.device) + (_busy(backward, again) - backward_device),
            "recompute": again.kernels if again is not None else 0.0,
            "tensor_parallel": sum((p.tensor_parallel for p in parts), 0.0),
            "context_parallel": sum((p.context_parallel for p in parts), 0.0),
            "expert_parallel": sum((p.expert_parallel for p in parts), 0.0),
            "data_parallel": beside.data_parallel,
            "offload": beside.offload,
        },
        hidden={
            "tensor_parallel": sum((p.hidden_tensor for p in parts), 0.0),
            "context_parallel": sum((p.hidden_context for p in parts), 0.0),
            "expert_parallel": sum((p.hidden_expert for p in parts), 0.0),
            "data_parallel": beside.data_parallel_hidden,
            "offload": beside.offload_hidden,
        },
    )
