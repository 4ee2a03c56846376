"""Model FLOPs: what training needs by arithmetic alone, for MFU."""

from collections import Counter

from cost_models.job import Job
from cost_models.parameters import Split, head_weights, layer_weights
from cost_models.specs.model import LayerKind, ModelSpec


def matrix_elements(model: ModelSpec, kind: LayerKind) -> float:
    """Elements of the matrices that one token meets in a layer: of the experts, only those it is routed to."""
    used = 0.0
    for w in layer_weights(model, kind):
        if w.linear and w.in_features:
            copies = model.moe.num_experts_per_tok if w.split is Split.EXPERT and model.moe is not None else w.copies
            used += copies * w.out_features * w.in_features
    return used


def attention_flops_per_token(model: ModelSpec, kind: LayerKind, sequence_length: int) -> float:
    r"""Forward FLOPs of QK^T and PV for one token, all scores counted. [FLOP]

    .. math:: 2 s (d_{qk} + d_v) a \quad (= 4 s h \text{ for } d_{qk} = d_v = h / a)

    The mask is not counted, as in PaLM, arXiv:2204.02311 appendix B; a sliding window limits s to its width.
    """
    window = model.sliding_window if kind.attention == "sliding" else None
    keys = sequence_length if window is None else min(sequence_length, window)
    value_width = model.num_attention_heads * model.mla.v_head_dim if model.mla is not None else model.query_width
    return 2.0 * keys * (model.query_width + value_width)


def model_flops(job: Job, sequences: int) -> float:
    r"""FLOPs of one step over the whole cluster, recompute not counted. [FLOP]

    .. math:: 72 B s l h^2 \left(1 + \frac{s}{6h} + \frac{V}{12 l h}\right)

    for a GPT; in general 6 per matrix element and token (4 when the matrix is frozen and only adapters are trained)
    and three times the forward of the attention core.
    Source: arXiv:2104.04473 equation 3 without its recomputed forward; PaLM, arXiv:2204.02311 appendix B.
    """
    model, training = job.model, job.training
    lora = training.adapters
    per_element = 6.0 if lora is None else 4.0
    head = model.vocab_size * (model.embedding_projection or model.hidden_size)
    head += sum(w.out_features * w.in_features for w in head_weights(model) if w.name == "project_out")
    total = (6.0 if lora is not None and lora.train_embeddings else per_element) * head
    for kind, layers in Counter(model.layer_sequence).items():
        total += layers * per_element * matrix_elements(model, kind)
        total += layers * 3.0 * attention_flops_per_token(model, kind, training.sequence_length)
    return total * sequences * training.sequence_length
