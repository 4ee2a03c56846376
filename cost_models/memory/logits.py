"""The head and the loss: logits, their copies and the gradients that meet there."""

from typing import Any

import numpy as np

from cost_models.arrays import choose
from cost_models.memory.eager import head_kept, norm_backward
from cost_models.memory.setting import Setting, Terms, once


@once
def loss_terms(setting: Setting) -> Terms:
    r"""Everything the head adds at the larger of the end of forward and the start of backward. [bytes]

    .. math:: \text{eager: } (12 + 2[\text{outputs kept}] + 2[\text{soft cap}])\,V\,T + (8h + 4)\,T

    .. math:: \text{Megatron: } \max(c\,V, 2V + 2h)\,T / t + (2c_h\,h + 4h/t)\,T

    with the framework's c_h, `backward_hidden_bytes`.

    Source: transformers `loss_utils.ForCausalLMLoss`; Megatron-LM `core/tensor_parallel/{cross_entropy,layers}.py`
    (the head gathers its input and, with fused weight gradients, keeps one 16-bit gradient of its weight's shape).
    """
    model, tokens, b = setting.model, setting.tokens, setting.activation
    h, vocabulary = model.hidden_size, setting.vocabulary
    capped = b if model.logit_softcap else 0.0
    eager_logits = (_peak(setting) + setting.fact("kept_outputs") * b + capped) * vocabulary * tokens
    chunks = setting.loss("chunks")
    eager_logits = choose(chunks > 1, _chunked(setting, eager_logits / chunks, chunks), eager_logits)
    eager_head = head_kept(setting) * tokens
    # The final norm's backward, with the logits gone and the head's gradient made, may need more than a chunk's loss.
    after = norm_backward(setting) * tokens - eager_head + _head_gradient(setting)
    eager_logits = choose(chunks > 1, np.maximum(eager_logits, after), eager_logits)
    fused = setting.loss("peak") * vocabulary * tokens
    dummy = setting.accumulating * b * h * vocabulary * setting.fact("dummy_weight_gradient")
    megatron_logits = np.maximum(fused, b * vocabulary * tokens + dummy)
    gathered = 2.0 * setting.fact("backward_hidden_bytes") * h  # input and gradient, each as in a layer's backward
    megatron_head = (gathered + 4.0 * h / setting.tensor) * tokens
    return {
        "logits": choose(setting.eager, eager_logits, megatron_logits),
        "head_activations": choose(setting.eager, eager_head, megatron_head),
    }


@once
def held_outputs(setting: Setting) -> Terms:
    """Logits that a loop holds with the model's outputs until the next forward replaces them. [bytes]

    The loss counts them among its own copies.
    """
    kept = setting.fact("kept_outputs") * setting.activation + setting.loss("held")
    return {"logits": choose(setting.eager, kept * setting.vocabulary * setting.tokens, 0.0)}


def _chunked(setting: Setting, logits: Any, chunks: Any) -> Any:
    """One chunk's logits beside the head's gradient so far, or its next part beside both. [bytes]"""
    gradient = _head_gradient(setting)
    last = setting.activation * setting.vocabulary * setting.tokens / chunks
    return np.maximum(logits + gradient, last + 2.0 * gradient)


def _peak(setting: Setting) -> Any:
    """Bytes per logit at the fullest moment; of a loss in chunks of a sequence only one chunk's gradients are there."""
    kept, length = setting.loss("kept"), setting.loss("chunk_length")
    share = choose(length > 0, np.minimum(length / setting.job.training.sequence_length, 1.0), 1.0)
    return kept + (setting.loss("peak") - kept) * share


def _head_gradient(setting: Setting) -> Any:
    """The gradient of the head's matrix. [bytes]"""
    trained = 0.0 if setting.adapters else 1.0
    return trained * setting.layout("gradient") * setting.model.hidden_size * setting.vocabulary


@once
def evaluation_terms(setting: Setting) -> Terms:
    """Logits of a forward without gradients at the evaluation's batch and length. [bytes]"""
    training = setting.job.training
    length = training.eval_sequence_length or training.sequence_length
    batch: Any = training.eval_batch_size or setting.strategy.micro_batch_size
    tokens = batch * length / setting.float_column("context_parallel")
    width, h = setting.model.intermediate_size, setting.model.hidden_size
    b = setting.activation
    layer = (2 * b * h + 3 * b * width / setting.tensor) * tokens
    return {"logits": setting.loss("forward") * setting.vocabulary * tokens, "evaluation_activations": layer}
