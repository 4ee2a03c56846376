"""How many parameters one rank holds, by what becomes of them: trained, trained expert, frozen, adapter."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from cost_models.arrays import Array, choose, somewhere
from cost_models.memory.architectures import architecture, fused_names
from cost_models.memory.setting import Setting
from cost_models.parameters import (
    Split,
    Weight,
    embedding_weights,
    head_weights,
    layer_weights,
    local_parameters,
)
from cost_models.specs.architecture import ArchitectureFacts
from cost_models.specs.model import LayerKind
from cost_models.specs.training import LoraSpec

ATTENTION_TARGETS = frozenset(
    {"q_proj", "k_proj", "v_proj", "o_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"}
)
_EXPERT_NAMES = frozenset({"gate_proj", "up_proj", "down_proj"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Parameters of one rank before ZeRO sharding, each a count by candidate. [parameters]"""

    trained: Array = 0.0
    """Trained, replicated over data- and context-parallel ranks."""
    expert: Array = 0.0
    """Trained experts, replicated over expert-data-parallel ranks."""
    other: Array = 0.0
    """Those of `trained` and `expert` that are no matrix of a linear layer."""
    factors: Array = 0.0
    """Row and column factors of all trained matrices."""
    frozen: Array = 0.0
    """Frozen and never quantised."""
    frozen_linear: Array = 0.0
    """Frozen, and stored in 4 bits under QLoRA."""
    frozen_expert: Array = 0.0
    """Frozen experts, stored in 4 bits under QLoRA."""
    adapter: Array = 0.0
    """Trained low-rank adapters."""
    module: Array = 0.0
    """Trained copies of embeddings beside adapters."""
    expanded: Array = 0.0
    """Frozen tensors that are added to their adapters' product before each use, and those adapters."""
    small: Array = 0.0
    """Those of small tensors, which DeepSpeed's ZeRO-3 does not partition."""

    def __add__(self, more: "Held") -> "Held":
        """Both together."""
        return Held(**{f.name: getattr(self, f.name) + getattr(more, f.name) for f in fields(self)})

    @property
    def base(self) -> Array:
        """All weights but adapters and trained copies."""
        return self.trained + self.expert + self.frozen + self.frozen_linear + self.frozen_expert


def is_target(weight: Weight, lora: LoraSpec, facts: ArchitectureFacts) -> bool:
    """Whether peft puts an adapter beside a layer's weight. Routers and fused expert tensors are no `nn.Linear`.

    Source: peft `utils/transformers_weight_conversion.py`, _MOE_TARGET_MODULE_MAPPING.
    """
    fused = weight.split is Split.EXPERT or weight.name == "router"
    name = "gate" if weight.name == "router" else weight.name.rsplit(".", 1)[-1]
    if not weight.linear or weight.in_features == 0 or (fused and not facts.adapted_experts):
        return False
    if facts.adapted_experts and not fused and name in _EXPERT_NAMES:
        return False
    if lora.target_modules == "all-linear":
        return True
    if lora.target_modules == "attention":
        return weight.name in ATTENTION_TARGETS
    if lora.target_modules == "qv":
        return weight.name in {"q_proj", "v_proj"}
    return name in lora.target_modules


def local(setting: Setting, weights: Iterable[Weight]) -> Array:
    """Parameters of a rank after tensor and expert parallelism."""
    s = setting.strategy
    return local_parameters(
        setting.model,
        weights,
        tensor_parallel=s.tensor_parallel,
        expert_parallel=s.expert_parallel,
        expert_tensor_parallel=s.expert_tensor_parallel,
        vocabulary_multiple=setting.vocabulary_multiple,
    )


def adapter_parameters(setting: Setting, weights: Iterable[Weight]) -> Array:
    """Parameters of the adapters of a layer on one rank: r (in + out) each, the split side split.

    Projections of one product have one adapter, whose first factor counts once.
    Source: arXiv:2106.09685, section 4.1.
    """
    lora = setting.adapters
    if lora is None:
        return 0.0
    t = setting.tensor
    result: Array = np.zeros_like(t)
    facts, s = architecture(setting.model), setting.strategy
    fused = frozenset() if facts.padded_adapters else fused_names(facts)
    for w in weights:
        if is_target(w, lora, facts) and w.split is Split.EXPERT:
            # One pair of factors for all experts; a gate fused with its product has twice the rank.
            ranks = lora.rank * w.copies / (s.expert_parallel * s.expert_tensor_parallel)
            width = w.in_features + w.out_features
            result = result + ranks * (width + (w.out_features if w.name != "experts.down_proj" else 0.0))
        elif is_target(w, lora, facts):
            down = 0.0 if w.name in fused else w.in_features / (t if w.split is Split.ROW else 1.0)
            up = w.out_features / (t if w.split in (Split.COLUMN, Split.KEY_VALUE) else 1.0)
            result = result + lora.rank * (down + up)
    return result


def small_parameters(setting: Setting, weights: Iterable[Weight]) -> Array:
    """Parameters of tensors at or below the persistence threshold of the back end."""
    threshold = setting.fact("persistent_parameters")
    result: Array = np.zeros_like(setting.tensor)
    if not somewhere(threshold):
        return result
    for w in weights:
        size = w.out_features * max(w.in_features, 1)
        result = result + choose(size <= threshold, float(w.count), 0.0)
    return result


def held(setting: Setting, weights: tuple[Weight, ...], *, layer: bool) -> Held:
    """Parameters of some weights on one rank. Outside the layers nothing is quantised or adapted."""
    experts = tuple(w for w in weights if w.split is Split.EXPERT)
    shared = tuple(w for w in weights if w.split is not Split.EXPERT)
    small = small_parameters(setting, weights)
    if setting.adapters is None:
        return Held(
            trained=local(setting, shared),
            expert=local(setting, experts),
            other=local(setting, [w for w in weights if not w.linear or w.in_features == 0]),
            factors=_factors(setting, weights),
            small=small,
        )
    if not layer:
        module = local(setting, [w for w in shared if w.split is Split.VOCABULARY])
        trained = module if setting.adapters.train_embeddings else 0.0
        head = local(setting, [w for w in shared if w.name == "lm_head"])
        head = head * setting.fact("quantized_head") if setting.quantized else 0.0 * head
        table = local(setting, [w for w in shared if w.name == "embed_tokens"])
        copies = setting.fact("embedding_copies") * table if setting.quantized else 0.0
        frozen = local(setting, shared) - head + copies
        return Held(frozen=frozen, frozen_linear=head, module=trained, other=trained, small=small)
    linear = tuple(w for w in shared if w.linear and w.in_features)
    facts = architecture(setting.model)
    expanded = [w for w in experts if is_target(w, setting.adapters, facts)]
    return Held(
        frozen=local(setting, [w for w in shared if w not in linear]),
        frozen_linear=local(setting, linear),
        frozen_expert=local(setting, experts),
        adapter=adapter_parameters(setting, weights),
        expanded=local(setting, expanded) + adapter_parameters(setting, expanded) if expanded else 0.0,
        small=small,
    )


def _factors(setting: Setting, weights: tuple[Weight, ...]) -> Array:
    """Elements of Adafactor's row and column sums. Source: arXiv:1804.04235, section 3."""
    share: Any = 0.0
    if not somewhere(setting.optimizer("factored")):
        return share  # type: ignore[no-any-return]
    for w in weights:
        elements = w.copies * (w.out_features + w.in_features)
        share = share + local(setting, [w]) / w.count * elements
    return share  # type: ignore[no-any-return]


def layer_held(setting: Setting, kind: LayerKind) -> Held:
    """One layer of a kind."""
    return held(setting, layer_weights(setting.model, kind), layer=True)


def embedding_held(setting: Setting) -> Held:
    """What the first stage holds beside its layers."""
    return held(setting, embedding_weights(setting.model), layer=False)


def head_held(setting: Setting, *, own_tied_copy: bool) -> Held:
    """What the last stage holds beside its layers; `own_tied_copy` when the tied embedding lives on another stage.

    Source: Megatron-LM `core/models/common/language_module`, shared embedding weights on first and last stage.
    """
    weights = head_weights(setting.model)
    if own_tied_copy and setting.model.tie_word_embeddings:
        weights += tuple(w for w in embedding_weights(setting.model) if w.name == "embed_tokens")
    return held(setting, weights, layer=False)
