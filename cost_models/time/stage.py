"""A stage beside its layers: embedding, head, boundary transfers; and what happens once a step."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cost_models.parameters import padded_vocabulary
from cost_models.schedule import BOTH, FIRST, LAST
from cost_models.specs.choices import CROSS_ENTROPIES
from cost_models.specs.model import LayerKind
from cost_models.time.adapters import stage_weights, trained_stage_weights
from cost_models.time.collectives import tensor_parallel_seconds
from cost_models.time.data_parallel import Local, local, step_seconds
from cost_models.time.elementwise import streaming_seconds
from cost_models.time.frame import Frame, lookup, once
from cost_models.time.gemm import backward_passes, matmul_seconds, sustained_rate
from cost_models.time.layer import Streams, layer_parameters, trained_parameters
from cost_models.time.offload import optimizer_offload_seconds
from cost_models.time.optimizer import overhead_seconds, update_seconds
from cost_models.time.pipeline import boundary_seconds, tied_embedding_seconds
from cost_models.time.work import Work


@dataclass(frozen=True, slots=True)
class HeadTime:
    """Seconds of the head for one micro-batch."""

    forward: Any
    backward: Any
    traffic: Any


@once
def head_seconds(frame: Frame) -> HeadTime:
    r"""Output matrix and loss of one micro-batch. [s]

    .. math:: 3 \times 2 T h V / (t\,\text{rate}) + b\,T V / (t\,\text{HBM})

    Source: arXiv:2104.04473 equation 3 (the 6 B s h V of its FLOP count); bytes per logit by cross-entropy.
    """
    model = frame.model
    vocabulary = padded_vocabulary(model, frame.tp) / frame.tp
    inner = model.embedding_projection or model.hidden_size
    gemm = matmul_seconds(2 * frame.tokens * inner * vocabulary, sustained_rate(frame, sixteen_bit=True))
    lora = frame.job.training.adapters
    times = 2.0 if lora is not None and lora.train_embeddings else backward_passes(frame)
    per_logit = lookup(
        frame.strategy.cross_entropy, CROSS_ENTROPIES, lambda name: frame.factor("head_bytes_per_logit", name)
    )
    return HeadTime(gemm, times * gemm, streaming_seconds(per_logit * frame.tokens * vocabulary, frame.hbm))


@once
def embedding_seconds(frame: Frame) -> Any:
    """Looking up and scattering back the embedding of one micro-batch. [s]"""
    elements = frame.tokens * frame.model.hidden_size / frame.sp
    return streaming_seconds(frame.factor("embedding_passes") * elements * frame.width, frame.hbm)


@once
def _stage_parameters(frame: Frame, stage: int) -> tuple[Local, Local]:
    """All and the trained parameters of a stage class beside its layers, on one rank. [parameters]"""
    every = local(frame, stage_weights(frame, stage))
    return every, local(frame, trained_stage_weights(frame, stage)) if frame.adapters else every


@once
def stage_work(frame: Frame, stage: int) -> Work:
    """Work of a stage class for one micro-batch, beside its layers."""
    has_embedding, has_head = stage in (FIRST, BOTH), stage in (LAST, BOTH)
    zero = np.zeros_like(frame.tokens)
    head = head_seconds(frame) if has_head else HeadTime(zero, zero, zero)
    looked_up = embedding_seconds(frame) if has_embedding else zero
    streams = Streams.of(frame, *_stage_parameters(frame, stage))
    busy = head.forward + head.traffic + looked_up
    gathered, hidden, fetched, fetched_hidden = streams.beside(frame, busy, head.backward)
    return Work(
        exposed={
            "compute": head.forward + head.backward,
            "elementwise": head.traffic + looked_up,
            # The embedding is summed over its vocabulary shards forward, the head's input gradient backward.
            "tensor_parallel": tensor_parallel_seconds(frame, float(has_embedding) + float(has_head)),
            "point_to_point": boundary_seconds(frame),
            "data_parallel": gathered,
            "offload": fetched,
            "fixed": zero + frame.by_backend("micro_batch_overhead_seconds"),
        },
        hidden={"data_parallel": hidden, "offload": fetched_hidden},
    )


@once
def layer_tail(frame: Frame, kind: LayerKind) -> Work:
    """Once a step and layer: gradient reduction, parameter gather, optimizer."""
    parameters, trained = layer_parameters(frame, kind), trained_parameters(frame, kind)
    exposed, hidden = step_seconds(frame, parameters, trained)
    return Work(
        exposed={"data_parallel": exposed, "optimizer": update_seconds(frame, trained)},
        hidden={"data_parallel": hidden},
    )


@once
def stage_tail(frame: Frame, stage: int) -> Work:
    """Once a step and stage, beside its layers."""
    parameters, trained = _stage_parameters(frame, stage)
    exposed, hidden = step_seconds(frame, parameters, trained)
    if stage in (FIRST, LAST):
        exposed = exposed + tied_embedding_seconds(frame)
    return Work(
        exposed={"data_parallel": exposed, "optimizer": update_seconds(frame, trained)},
        hidden={"data_parallel": hidden},
    )


@once
def layer_offload(frame: Frame, kind: LayerKind) -> Work:
    """Once a step for every layer whose optimizer states live on the host."""
    return Work(exposed={"offload": optimizer_offload_seconds(frame, trained_parameters(frame, kind))})


def fixed_work(frame: Frame) -> Work:
    """Once a step, whatever the layout."""
    return Work(exposed={"fixed": overhead_seconds(frame)})
