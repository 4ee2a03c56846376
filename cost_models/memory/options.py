"""What options of the job change in the ledger: second models, logits that evaluation keeps, whole copies at load and
save, optimizers that run inside backward or page their states out.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from cost_models.arrays import choose
from cost_models.memory.setting import Setting, Terms, catalogued, divisor
from cost_models.specs.framework import FrameworkFacts, ParameterLayout
from cost_models.specs.training import TrainingSpec

FP32 = 4.0


def facts_of(training: TrainingSpec, frameworks: Mapping[str, FrameworkFacts] | None) -> tuple[FrameworkFacts, ...]:
    """Facts of every back end under the job's options. Those given replace the catalogue's."""
    from cost_models.catalog import framework  # noqa: PLC0415  reads files only where an option asks

    facts = catalogued(frameworks)
    if training.dropout is not None:
        on = training.dropout > 0
        facts = tuple(f if f.dropout == on else f.model_copy(update={"dropout": on}) for f in facts)
    if training.state_precision != "pure" and not training.optimizer_in_backward:
        return facts
    return tuple(varied(training, each, framework("ddp-pure-bf16")) for each in facts)


def varied(training: TrainingSpec, facts: FrameworkFacts, pure: FrameworkFacts) -> FrameworkFacts:
    """A framework's facts under the job's options. `pure` has the layouts of training without an fp32 copy.

    An optimizer inside backward frees each gradient when it has been applied: none is kept.
    Source: pytorch.org tutorial `optimizer_step_in_backward`; torchtune `optimizer_in_bwd`; arXiv:2306.09782 (LOMO).
    """
    layouts = dict(facts.layouts)
    if training.state_precision == "pure":
        layouts.update(pure.layouts)
    if training.optimizer_in_backward:
        layouts = {name: _without_gradients(layout) for name, layout in layouts.items()}
    if layouts == dict(facts.layouts):
        return facts
    return facts.model_copy(update={"layouts": layouts})  # still valid: the same keys, other numbers


def _without_gradients(layout: ParameterLayout) -> ParameterLayout:
    return layout.model_copy(update={"gradient": 0.0, "step_gradient": 0.0})


def reference_bytes(setting: Setting, whole: Any) -> Any:
    """A frozen copy of the model in the compute dtype, sharded as the weights are. [bytes]

    Source: arXiv:2305.18290, section 4 (DPO's reference policy); trl `create_reference_model`.
    """
    resident = choose(setting.column("parameter_offload") > 0, 0.0, 1.0)
    return resident * setting.compute * whole / divisor(setting, "weights_sharded_from")


def kept_logits_bytes(setting: Setting) -> Any:
    r"""Logits of all evaluated samples, in fp32 and gathered on every rank. [bytes]

    .. math:: 4\,S\,L\,V

    Source: transformers `Trainer.evaluation_loop` (predictions are gathered and concatenated on the device until
    `eval_accumulation_steps`); accelerate `ConvertOutputsToFp32`.
    """
    training = setting.job.training
    length = training.eval_sequence_length or training.sequence_length
    return FP32 * training.eval_kept_samples * length * setting.model.vocab_size * np.ones_like(setting.tensor)


def evaluation_score_bytes(setting: Setting) -> Any:
    r"""Scores of one layer's written-out attention in a forward without gradients. [bytes]

    .. math:: (2 b + 4)\,a\,L\,T / t

    the masked scores, their fp32 softmax and its cast, with a heads, evaluation length L and T tokens of its batch.
    Source: transformers `eager_attention_forward`.
    """
    training, s = setting.job.training, setting.strategy
    length = training.eval_sequence_length or training.sequence_length
    batch: Any = training.eval_batch_size or s.micro_batch_size
    scores = setting.model.num_attention_heads * batch * float(length) ** 2 / setting.tensor
    return choose(setting.materialised, (2 * setting.activation + 4) * scores, 0.0)


def option_terms(setting: Setting, whole: Any, phase: str) -> Terms:
    """What the options add in a phase of the run. [bytes]

    Source of whole copies: accelerate `Accelerator.get_state_dict` under FSDP2 (full tensors are made on the device);
    transformers `integrations/mxfp4.py` (dequantised weights are made before they are sharded).
    """
    training = setting.job.training
    terms: Terms = {}
    if training.reference_model:
        terms["reference_model"] = reference_bytes(setting, whole)
    if phase == "eval" and training.eval_kept_samples:
        terms["kept_logits"] = kept_logits_bytes(setting)
    if phase == "load" and training.load == "whole_on_device":
        terms["load_copy"] = setting.compute * whole
    if phase == "save" and training.save == "whole_on_device":
        terms["save_copy"] = setting.layout("weight") * whole
    return terms
