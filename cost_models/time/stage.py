"""A stage beside its layers: embedding, head, boundary transfers; and what happens once a step."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cost_models.parameters import padded_vocabulary
from cost_models.schedule import BOTH, FIRST, LAST
from cost_models.specs.choices import CROSS_ENTROPIES
from cost_models.specs.model import LayerKind
from cost_models.time import alike
from cost_models.time.adapters import stage_weights, trained_stage_weights
from cost_models.time.data_parallel import Cover, Local, local, step_seconds
from cost_models.time.elementwise import streaming_seconds
from cost_models.time.frame import Frame, lookup, once, once_for
from cost_models.time.gemm import backward_passes, matmul_seconds, sustained_rate
from cost_models.time.layer import Beside, Streams, layer_cover, layer_parameters, trained_parameters
from cost_models.time.offload import optimizer_offload_seconds
from cost_models.time.optimizer import accumulation_seconds, overhead_seconds, update_seconds
from cost_models.time.pipeline import boundary_seconds, boundary_share, tied_embedding_seconds
from cost_models.time.tensor_parallel import reduction_seconds
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


@once_for(alike.ends)
def _stage_parameters(frame: Frame, stage: int) -> tuple[Local, Local]:
    """All and the trained parameters of a stage class beside its layers, on one rank. [parameters]"""
    every = local(frame, stage_weights(frame, stage))
    return every, local(frame, trained_stage_weights(frame, stage)) if frame.adapters else every


def _ends(frame: Frame, stage: int) -> tuple[HeadTime, Any]:
    """Head and embedding of a stage class, zero where it has none. [s]"""
    zero = np.zeros_like(frame.tokens)
    head = head_seconds(frame) if stage in (LAST, BOTH) else HeadTime(zero, zero, zero)
    return head, embedding_seconds(frame) if stage in (FIRST, BOTH) else zero


@once_for(alike.ends)
def _beside(frame: Frame, stage: int) -> Beside:
    """Sharded parameters of the ends move beside the ends' own compute only."""
    head, looked_up = _ends(frame, stage)
    streams = Streams.of(frame, *_stage_parameters(frame, stage), copy=0.0)
    return streams.beside(frame, Cover(head.forward + head.traffic + looked_up, head.backward))


@once_for(alike.ends)
def _ends_work(frame: Frame, stage: int) -> Work:
    """Work of embedding and head for one micro-batch."""
    (head, looked_up), beside = _ends(frame, stage), _beside(frame, stage)
    zero, ends = np.zeros_like(frame.tokens), float(stage in (FIRST, BOTH)) + float(stage in (LAST, BOTH))
    summed = accumulation_seconds(frame, _stage_parameters(frame, stage)[1])
    return Work(
        exposed={
            "compute": head.forward + head.backward,
            "elementwise": head.traffic + looked_up + summed,
            # The embedding is summed over its vocabulary shards forward, the head's input gradient backward.
            "tensor_parallel": reduction_seconds(frame, ends),
            "data_parallel": beside.data_parallel,
            "offload": beside.offload,
            "fixed": zero + frame.by_backend("micro_batch_overhead_seconds"),
        },
        hidden={"data_parallel": beside.data_parallel_hidden, "offload": beside.offload_hidden},
    )


@once
def stage_work(frame: Frame, stage: int) -> Work:
    """Work of a stage class for one micro-batch, beside its layers."""
    ends, (sent, sent_hidden) = _ends_work(frame, stage), boundary_seconds(frame)
    return Work(exposed={**ends.exposed, "point_to_point": sent}, hidden={**ends.hidden, "point_to_point": sent_hidden})


@once
def layer_tail(frame: Frame, kind: LayerKind) -> Work:
    """Once a step and layer: gradient reduction, parameter gather, optimizer."""
    parameters, trained = layer_parameters(frame, kind), trained_parameters(frame, kind)
    cover, passed = layer_cover(frame, kind), boundary_share(frame)
    left = Cover((1 - passed) * cover.forward, (1 - passed) * cover.backward)
    exposed, hidden = step_seconds(frame, parameters, trained, left)
    return Work(
        exposed={"data_parallel": exposed, "optimizer": update_seconds(frame, trained)},
        hidden={"data_parallel": hidden},
    )


@once
def stage_tail(frame: Frame, stage: int) -> Work:
    """Once a step and stage, beside its layers."""
    parameters, trained = _stage_parameters(frame, stage)
    exposed, hidden = step_seconds(frame, parameters, trained, _beside(frame, stage).left)
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
