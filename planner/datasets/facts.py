"""What a row says of its framework's own switches: dropout, deterministic kernels, loss implementation, and so on.

These are no choices of a plan, but facts of the measured run; they replace the catalogue's facts of its back end.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from cost_models import catalog
from cost_models.specs.choices import Attention, Backend
from cost_models.specs.framework import FrameworkFacts
from cost_models.specs.model import ModelSpec
from planner.datasets.frameworks import FrameworkReading
from planner.datasets.vocabulary import flag, method_of
from planner.measurement import Measurement

_NAMED_SWITCHES: Final[Mapping[str, str]] = {
    "defer_embedding_wgrad": "deferred_head_gradient",
    "tunable_overlap": "early_forward",
    "_distill": "distillation",
}
"""Parts of the names of Megatron-LM's functional tests that are switches of their configuration."""


def switched(row: Measurement, fact: str) -> bool | None:
    """A yes-or-no fact of the notes, or of a test's name; None where neither says."""
    stated = flag(row, fact)
    if stated is not None:
        return stated
    named = any(part in row.model for part, switch in _NAMED_SWITCHES.items() if switch == fact)
    return True if named else None


def framework_changes(
    row: Measurement, reading: FrameworkReading, backend: Backend, model: ModelSpec, *, pure: bool
) -> dict[str, Any]:
    """Fields of `FrameworkFacts` in which the run differs from the catalogue's."""
    facts = catalog.framework(backend)
    changes: dict[str, Any] = {}
    for fact, key in (("deterministic", "deterministic"), ("kept_outputs", "kept_outputs")):
        stated = switched(row, fact)
        if stated is not None:
            changes[key] = stated
    if switched(row, "kept_outputs") is None and reading.kept_outputs:
        changes["kept_outputs"] = True
    changes |= _flat(row) if reading.flat_units else {}
    changes |= _old_bitsandbytes(row) if reading.old_bitsandbytes else {}
    if reading.rest_of_quantized is not None:
        changes["quantized"] = facts.quantized.model_copy(update={"other": reading.rest_of_quantized})
    if _OLD_STACK.search(row.ref) or any(found < _LAZY_FROM for found in _DATE.findall(row.notes)):
        changes["eager_module_loading"] = True
    if reading.functional_test:
        changes["functional_test"] = True
    dropout = _dropout(row, reading, model)
    if dropout is not None:
        changes["dropout"] = dropout
    if switched(row, "accumulation_fusion") is False:
        changes["dummy_weight_gradient"] = False
    instances = row.facts.get("optimizer_instances", "")
    if instances.isdecimal() and int(instances) > 1:
        changes["optimizer_instances"] = int(instances)
    if switched(row, "early_forward"):
        changes["early_forward_chunks"] = 2
    changes |= _loss(row, reading, facts)
    if reading.reduce_bytes is not None:
        changes["layouts"] = {
            name: layout.model_copy(update={"reduce": min(layout.reduce, reading.reduce_bytes)})
            for name, layout in facts.layouts.items()
        }
    if pure:
        changes["layouts"] = {**facts.layouts, **catalog.framework("ddp-pure-bf16").layouts}
    return {key: value for key, value in changes.items() if value != getattr(facts, key)}


def _flat(row: Measurement) -> dict[str, Any]:
    """How litgpt accumulates. Source: litgpt/finetune/lora.py, setup (FSDPStrategy), fit (no_backward_sync, and
    longest_seq_ix where there is no step yet).
    """
    return {"flat_units": True, "longest_first": flag(row, "longest_sample") is True}


def _old_bitsandbytes(row: Measurement) -> dict[str, Any]:
    """What litgpt's 4-bit models hold. Source: litgpt/finetune/lora.py, main: old_embedding beside StableEmbedding."""
    held = 0.0 if flag(row, "longest_sample") else 1.0
    return {
        "kept_frozen_inputs": True, "quantized_head": True, "embedding_copies": 1.0, "held_frozen_inputs": held,
    }  # fmt: skip


def _dropout(row: Measurement, reading: FrameworkReading, model: ModelSpec) -> bool | None:
    """Whether masks are kept: stated, or Megatron-LM's arguments' default of 0.1, which recipes of gated models and of
    models without biases (squared ReLU) set to 0.
    """
    stated = row.facts.get("dropout")
    if stated is not None:
        try:
            return float(stated) > 0
        except ValueError:
            return flag(row, "dropout")
    if not reading.dropout:
        return None
    return not model.gated_mlp and model.activation != "relu2"


def _loss(row: Measurement, reading: FrameworkReading, facts: FrameworkFacts) -> dict[str, Any]:
    """The loss implementation, where the run names one beside the three that a plan chooses from."""
    name = row.facts.get("cross_entropy", reading.loss_variant or "")
    if not name and _compiles_its_loss(row):
        name = "compiled"
    if switched(row, "deferred_head_gradient"):
        name = "deferred"
    if method_of(row) == "full":
        name = reading.loss_variant_full or name
    variant = facts.loss_variants.get(name)
    return {} if variant is None else {"cross_entropy": dict.fromkeys(facts.cross_entropy, variant)}


_LOSS_COMPILED_FROM: Final = "202504"
_LAZY_FROM: Final = "2022-05"
"""Month of CUDA 11.7, the first with lazy loading of modules."""
_DATE: Final = re.compile(r"\bdate (20\d\d-\d\d)")
_OLD_STACK: Final = re.compile(r"^bigscience-workshop/")
"""Repositories whose runs all came before."""
_UNMODELLED: Final = (
    ("mtp_layers", "multi-token prediction heads not modelled for memory"),
    ("offloaded_modules", "offloading of single modules' activations not modelled"),
    ("distillation", "distillation holds a second model"),
)


def _compiles_its_loss(row: Measurement) -> bool:
    """Whether torch.compile took the loss too: torchtitan does so since April 2025, where no tensor is split.

    A loss over vocabulary shards is not compiled. Its benchmark files are named by their month.

    Source: pytorch/torchtitan `components/loss.py`, build_cross_entropy_loss.
    """
    month = re.search(r"_(20\d{4})_", row.ref)
    compiled = flag(row, "compile") is True and "torchtitan" in row.framework.lower() and (row.tp or 1) == 1
    return compiled and month is not None and month.group(1) >= _LOSS_COMPILED_FROM


def unmodelled(row: Measurement) -> str:
    """Why no memory can be predicted: something that the run has and no configuration can say; "" for nothing."""
    for fact, reason in _UNMODELLED:
        if row.facts.get(fact) or switched(row, fact):
            return reason
    if re.search(r"\b(?:bd|do)lora\b|-(?:bd|do)ra\b|-bdlora\b", row.notes.partition(";")[0].lower()):
        return "DoRA and block-diagonal adapters not modelled"
    if "oneflow" in row.framework.lower():
        return "OneFlow's allocator not modelled"
    frozen = row.method.lower() in {"lora", "qlora"}
    return "frozen fp32 weights under autocast not modelled" if frozen and "mixed" in row.precision.lower() else ""


def open_losses(row: Measurement, backend: Backend) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """Loss implementations that may have run instead of the priced one, as names and changes of facts: what a compiled
    loss keeps depends on how the compiler fused it.
    """
    facts = catalog.framework(backend)
    other = facts.loss_variants.get("compiled_in_parts")
    if row.facts.get("cross_entropy") != "compiled" or other is None:
        return ()
    return (("compiled_in_parts", {"cross_entropy": dict.fromkeys(facts.cross_entropy, other)}),)


def unsaid(row: Measurement, backend: Backend, attention: Attention) -> tuple[Attention, ...]:
    """Attention kernels that the row leaves open beside the one that is priced: what `auto` may pick on its stack.

    A blank says nothing either where the back end has no default of its own (Megatron-LM).
    """
    text = row.flash_attn.lower()
    undecided = "auto" in text or (not text and backend.startswith("megatron"))
    if not undecided or "attention" in row.facts or flag(row, "transformer_engine") is False:
        return ()
    return () if attention == "eager" else ("eager",)
