"""Options of the job that a report's text states and the common header lacks, by their name in `TrainingSpec`."""

import re
from dataclasses import dataclass, field
from typing import Any, Final

from planner.datasets.cases import UserCase

_EVALUATION_SAMPLES: Final = 1000
"""Samples of an evaluation whose size a report does not state."""


@dataclass(slots=True)
class _Options:
    values: dict[str, Any] = field(default_factory=dict)
    assumed: list[str] = field(default_factory=list)

    def assume(self, key: str, value: Any, why: str) -> None:
        self.values[key] = value
        self.assumed.append(f"{key}: {why}")


def options_of(case: UserCase, text: str, method: str, *, to_nvme: bool) -> tuple[dict[str, Any], list[str]]:
    """The options, and what was assumed for them. `text` is the whole configuration in lower case."""
    options = _Options()
    _optimizer(case, options)
    _second_model(text, method, options)
    _evaluation(case, options)
    if to_nvme:
        options.values["offload_to"] = "nvme"
    _loading(case, text, options)
    _saving(case, text, options)
    return options.values, options.assumed


def _optimizer(case: UserCase, options: _Options) -> None:
    text = case.text("config", "optimizer")
    if re.search(r"in[- ]backward|fused backward|in_bwd|lomo|layerwise", text + case.text("config", "recipe")):
        options.values["optimizer_in_backward"] = True
    if "paged" in text:
        options.values["optimizer_paged"] = True


def _second_model(text: str, method: str, options: _Options) -> None:
    """A frozen reference policy; with adapters the base model itself is the reference."""
    compares = re.search(r"\b(?:dpo|grpo|ppo|kto|rlhf|rloo)\b|easyr1|verl|openrlhf", text)
    if compares and method == "full" and not re.search(r"orpo|simpo|reference[- ]free|no ref", text):
        options.assume("reference_model", True, "a frozen copy of the model, as preference losses keep")


def _evaluation(case: UserCase, options: _Options) -> None:
    samples, text = case.whole("config", "eval_samples"), case.text("config", "eval")
    reduced = re.search(r"generate|preprocess_logits|argmax|loss[_ -]only", text)
    if re.search(r"compute_metrics|whole|predict|logits", text) and not reduced:
        if samples is None:
            options.assume("eval_kept_samples", _EVALUATION_SAMPLES, f"not stated, {_EVALUATION_SAMPLES} assumed")
        else:
            options.values["eval_kept_samples"] = samples
    for option, pattern in _EVALUATION_TEXT:
        named = re.search(pattern, text)
        if named:
            options.values[option] = int(named.group(1))
    if "batch" in text and "default" in text and "eval_batch_size" not in options.values:
        options.assume("eval_batch_size", _TRAINER_EVALUATION_BATCH, "default of transformers' Trainer")
    for option, keys in _LENGTHS.items():
        stated = next((value for key in keys if (value := case.whole("config", key)) is not None), None)
        if stated is not None:
            options.values[option] = stated


_TRAINER_EVALUATION_BATCH: Final = 8
"""per_device_eval_batch_size of transformers' TrainingArguments."""
_EVALUATION_TEXT: Final = (
    ("eval_batch_size", r"batch(?:[_ ]size)?\D{0,4}(\d{1,4})\b"),
    ("eval_sequence_length", r"(?:seq\w*|len\w*)\D{0,4}(\d{3,7})\b"),
)
_LENGTHS: Final = {
    "eval_sequence_length": ("eval_seq_len", "eval_sequence_length"),
    "eval_batch_size": ("eval_batch_size", "eval_batch", "per_device_eval_batch_size"),
}


def _loading(case: UserCase, text: str, options: _Options) -> None:
    """How weights reach the devices. Stacks on transformers' DeepSpeed integration build a model partitioned."""
    name = case.text("config", "framework")
    if re.search(r"dequanti[sz]ed|mxfp4", text):
        options.values["load"] = "whole_on_device"
    elif re.search(
        r"(?:rank ?0|each rank|every rank|per[- ]rank|single card).{0,20}load|loads? the (?:full|whole)", text
    ):
        where = "whole_on_device" if re.search(r"gpu|cuda|device|card", text) else "whole_on_host"
        options.values["load"] = where
    elif re.search(r"zero\.init|meta device|low_cpu_mem|sharded init", text):
        options.values["load"] = "sharded"
    elif re.search(r"llama-?(?:recipes|cookbook)|fastchat|stanford.?alpaca|pytorch fsdp", name):
        options.assume("load", "whole_on_host", "every rank loads the whole model, as the stack's script does")
    elif "deepspeed" in name and not re.search(_PARTITIONED, name):
        options.assume("load", "whole_on_host", "built whole on the host, as without zero.Init")


_PARTITIONED: Final = r"\bhf\b|trainer|transformers|accelerate|factory|swift|axolotl|trl|xtuner|megatron|neox"


def _saving(case: UserCase, text: str, options: _Options) -> None:
    """accelerate makes full tensors on the device when it saves a whole FSDP2 model."""
    on_accelerate = re.search(r"accelerate|trl|axolotl|\bhf\b|transformers", case.text("config", "framework"))
    if re.search(r"full_state_dict|full state[- ]dict|full[- ]model save", text) or ("fsdp2" in text and on_accelerate):
        options.values["save"] = "whole_on_device"
