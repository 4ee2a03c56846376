"""Which limit a ledger runs into: the first kind of memory without which the configuration would fit.

Kinds are asked in the order of what their remedy costs: attention scores and logits vanish with another kernel or loss,
activations with recomputation or a smaller micro-batch; states need other hardware, shards or numerics.
"""

from collections.abc import Callable, Mapping
from typing import Final

from cost_models.ledger import MemoryLedger
from planner.validate.case_labels import Limit

_GROUPS: Final[Mapping[str, Limit]] = {
    "weights": "states", "four_bit_weights": "states", "lora_adapters": "states", "trainable_embeddings": "states",
    "gradients": "states", "optimizer_states": "states", "reference_model": "states", "error_feedback": "states",
    "weight_casts": "states", "logits": "logits", "head_activations": "logits", "kept_logits": "evaluation_peak",
    "live_parameters": "buffers", "buckets": "buffers", "workspaces": "buffers", "dequantized_weights": "buffers",
    "dummy_weight_gradients": "buffers", "step_temporaries": "first_step_peak", "load_copy": "load_peak",
    "save_copy": "save_peak", "evaluation_activations": "evaluation_peak",
}  # fmt: skip
_SCORES: Final = frozenset({"attention_working_set", "attention_activations"})
_ORDER: Final[tuple[Limit, ...]] = ("attention_scores", "logits", "activations", "buffers")
_PHASES: Final[Mapping[str, Limit]] = {
    "load": "load_peak", "first_step": "first_step_peak", "eval": "evaluation_peak", "save": "save_peak",
}  # fmt: skip


def grouped(ledger: MemoryLedger, stage: int, instant: str, *, scores: bool) -> dict[Limit, float]:
    """Bytes allocated at an instant by kind; `scores` says that attention materialises them."""
    found: dict[Limit, float] = {}
    for term, size in ledger.stages[stage].instants[instant].items():
        kind: Limit = "attention_scores" if scores and term in _SCORES else _GROUPS.get(term, "activations")
        found[kind] = found.get(kind, 0.0) + size
    return found


def device_limit(ledger: MemoryLedger, *, scores: bool) -> Limit:
    """What a device runs into, or comes closest to running into."""
    room = _room(ledger)
    step = _fullest(ledger, lambda phase: phase == "step")
    if step is None or ledger.stages[step[0]].allocated(step[1]) <= room:
        stage, instant = ledger.binding
        phase = ledger.phase_of[instant]
        if ledger.stages[stage].allocated(instant) > room and phase in _PHASES:
            return _PHASES[phase]
    load = _fullest(ledger, lambda phase: phase == "load")
    if load is not None and _copies(ledger, load) and ledger.stages[load[0]].allocated(load[1]) > room:
        return "load_peak"
    at = step or ledger.binding
    kinds = grouped(ledger, *at, scores=scores)
    held = sum(kinds.values())
    if held > room:
        for kind in _ORDER:
            if held - kinds.get(kind, 0.0) <= room:
                return kind
    return _largest(kinds)


def _copies(ledger: MemoryLedger, at: tuple[int, str]) -> bool:
    return ledger.stages[at[0]].instants[at[1]].get("load_copy", 0.0) > 0


def _room(ledger: MemoryLedger) -> float:
    """Allocated bytes that fit: at the median where even that is exceeded, else at the ledger's risk."""
    room = ledger.usable_bytes - ledger.context_bytes - ledger.communicator_bytes
    if ledger.device_bytes > ledger.usable_bytes:
        return room / ledger.fragmentation_median
    return room / (ledger.allocated_quantile * ledger.fragmentation_quantile)


def _fullest(ledger: MemoryLedger, wanted: Callable[[str], bool]) -> tuple[int, str] | None:
    places = [
        (stage.stage, instant)
        for stage in ledger.stages
        for instant in stage.instants
        if wanted(ledger.phase_of[instant])
    ]
    return max(places, key=lambda at: ledger.stages[at[0]].allocated(at[1])) if places else None


def _largest(kinds: Mapping[Limit, float]) -> Limit:
    return max(kinds, key=lambda kind: kinds[kind])
