"""Which weights are trained: all of them, or low-rank adapters beside frozen ones."""

from typing import Any

from cost_models.parameters import Split, Weight, count, embedding_weights, head_weights, layer_weights
from cost_models.schedule import BOTH, FIRST, LAST
from cost_models.specs.model import LayerKind
from cost_models.specs.training import LoraSpec
from cost_models.time.frame import Frame
from cost_models.time.gemm import matmul_seconds, sustained_rate

_ATTENTION = frozenset({"q_proj", "k_proj", "v_proj", "o_proj"})
_TARGETS = {"attention": _ATTENTION, "qv": frozenset({"q_proj", "v_proj"})}


def targeted(weight: Weight, lora: LoraSpec) -> bool:
    """Whether a matrix gets an adapter; routers and fused expert tensors, which are no `nn.Linear`, never do.

    Source: peft `target_modules` (names match by suffix; all-linear leaves the output layer out).
    """
    if not weight.linear or weight.in_features == 0 or weight.split is Split.EXPERT or weight.name == "router":
        return False
    if lora.target_modules == "all-linear":
        return True
    names = _TARGETS[lora.target_modules] if isinstance(lora.target_modules, str) else frozenset(lora.target_modules)
    return weight.name.rsplit(".", 1)[-1] in names


def adapter_weights(model_weights: tuple[Weight, ...], lora: LoraSpec) -> tuple[Weight, ...]:
    """The two factors of every adapter, split as the matrix they stand beside.

    Source: LoRA, arXiv:2106.09685 section 4.1 (B A with A of r x in and B of out x r); Megatron-style split: the
    factor on the split side of the matrix is split, the other is whole.
    """
    adapters: list[Weight] = []
    for w in model_weights:
        if not targeted(w, lora):
            continue
        down, up = Split.REPLICATED, Split.REPLICATED
        if w.split in (Split.COLUMN, Split.KEY_VALUE):
            up = w.split
        elif w.split is Split.ROW:
            down = w.split
        adapters.append(
            Weight(
                name=f"{w.name}.lora_A", out_features=lora.rank, in_features=w.in_features, split=down, copies=w.copies
            )
        )
        adapters.append(
            Weight(
                name=f"{w.name}.lora_B", out_features=w.out_features, in_features=lora.rank, split=up, copies=w.copies
            )
        )
    return tuple(adapters)


def trained_layer_weights(frame: Frame, kind: LayerKind) -> tuple[Weight, ...]:
    """Trained weights of one layer."""
    weights, lora = layer_weights(frame.model, kind), frame.job.training.adapters
    return weights if lora is None else adapter_weights(weights, lora)


def stage_weights(frame: Frame, stage: int) -> tuple[Weight, ...]:
    """Weights of a stage class beside its layers; a tied matrix is held at both ends of a pipeline."""
    model = frame.model
    first, last = embedding_weights(model), head_weights(model)
    tied = tuple(w for w in first if w.name == "embed_tokens") if model.tie_word_embeddings else ()
    return {FIRST: first, LAST: tied + last, BOTH: first + last}.get(stage, ())


def trained_stage_weights(frame: Frame, stage: int) -> tuple[Weight, ...]:
    """Trained weights of a stage class beside its layers."""
    lora = frame.job.training.adapters
    return stage_weights(frame, stage) if lora is None or lora.train_embeddings else ()


def adapter_seconds(frame: Frame, kind: LayerKind) -> Any:
    """Matrix products of the adapters of one layer, one pass. [s]

    Thin matrices run far below the rate of square ones; the factor is fitted.
    """
    lora = frame.job.training.adapters
    if lora is None:
        return 0.0
    per_token = count(adapter_weights(layer_weights(frame.model, kind), lora))
    flops = 2 * frame.tokens * per_token / frame.tp
    return matmul_seconds(flops, sustained_rate(frame, sixteen_bit=True) * frame.factor("adapter_gemm_efficiency"))
