"""What options of the job add to the ledger: second models, logits that evaluation keeps, whole copies at load and
save, optimizers that run inside backward or page their states out.
"""

from typing import Any

import numpy as np

from cost_models.memory.setting import Setting, Terms, divisor
from cost_models.specs.framework import FrameworkFacts, ParameterLayout
from cost_models.specs.training import TrainingSpec

FP32 = 4.0


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
    return facts.model_copy(update={"layouts": layouts})


def _without_gradients(layout: ParameterLayout) -> ParameterLayout:
    return layout.model_copy(update={"gradient": 0.0, "step_gradient": 0.0})


def reference_bytes(setting: Setting, whole: Any) -> Any:
    """A frozen copy of the model in the compute dtype, sharded as the weights are. [bytes]

    Source: arXiv:2305.18290, section 4 (DPO's reference policy); trl `create_reference_model`.
    """
    resident = np.where(np.asarray(setting.strategy.parameter_offload) > 0, 0.0, 1.0)
    asked = 1.0 if setting.job.training.reference_model else 0.0
    return asked * resident * setting.compute * whole / divisor(setting, "weights_sharded_from")


def kept_logits_bytes(setting: Setting) -> Any:
    r"""Logits of all evaluated samples, in fp32 and gathered on every rank. [bytes]

    .. math:: 4\,S\,L\,V

    Source: transformers `Trainer.evaluation_loop` (predictions are gathered and concatenated on the device until
    `eval_accumulation_steps`); accelerate `ConvertOutputsToFp32`.
    """
    training = setting.job.training
    length = training.eval_sequence_length or training.sequence_length
    return FP32 * training.eval_kept_samples * length * setting.model.vocab_size * np.ones_like(setting.tensor)


def whole_copy_bytes(setting: Setting, whole: Any, size: Any, *, asked: bool) -> Any:
    """A whole copy of the weights on every device. [bytes]"""
    return (1.0 if asked else 0.0) * size * whole


def option_terms(setting: Setting, whole: Any, phase: str) -> Terms:
    """What the options add in a phase of the run. [bytes]

    Source of whole copies: accelerate `Accelerator.get_state_dict` under FSDP2 (full tensors are made on the device);
    transformers `integrations/mxfp4.py` (dequantised weights are made before they are sharded).
    """
    training = setting.job.training
    terms: Terms = {"reference_model": reference_bytes(setting, whole)}
    if phase == "eval":
        terms["kept_logits"] = kept_logits_bytes(setting)
    if phase == "load":
        asked = training.load == "whole_on_device"
        terms["load_copy"] = whole_copy_bytes(setting, whole, setting.compute, asked=asked)
    if phase == "save":
        asked = training.save == "whole_on_device"
        terms["save_copy"] = whole_copy_bytes(setting, whole, setting.layout("weight"), asked=asked)
    return terms
