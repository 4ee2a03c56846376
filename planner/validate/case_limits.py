"""Which limit a configuration runs into: the first remedy without which it does not fit.

A phase other than the step is the limit where the step itself would fit. States that leave next to nothing of a device
are the limit themselves. Else the usual remedies are priced, cheapest first: another attention kernel, a fused loss,
recomputation or a smaller micro-batch; the first that makes the configuration fit names its limit. Where none does, the
largest kind of memory at the peak is the limit.
"""

from collections.abc import Callable, Iterable, Mapping
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
STATES_SHARE: Final = 0.8
"""States that take more than this share of a device are its limit: what they leave is less than any run needs."""
_SCORES: Final = frozenset({"attention_working_set", "attention_activations"})
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


def device_limit(ledger: MemoryLedger, remedies: Iterable[tuple[Limit, MemoryLedger]], *, scores: bool) -> Limit:
    """What a device runs into, or comes closest to running into.

    `remedies` are the ledgers after each remedy, by the limit that it removes; they are priced only as far as needed.
    """
    room = _room(ledger)
    step = _fullest(ledger, lambda phase: phase == "step") or ledger.binding
    fails = ledger.stages[step[0]].allocated(step[1]) > room
    if not fails:
        stage, instant = ledger.binding
        if ledger.stages[stage].allocated(instant) > room:
            return _PHASES.get(ledger.phase_of[instant], "states")
    load = _fullest(ledger, lambda phase: phase == "load")
    if load is not None and _copies(ledger, load) and ledger.stages[load[0]].allocated(load[1]) > room:
        return "load_peak"
    kinds = grouped(ledger, *step, scores=scores)
    if fails and kinds.get("states", 0.0) <= STATES_SHARE * ledger.usable_bytes:
        for limit, other in remedies:
            if other.device_bytes <= other.usable_bytes:
                return limit
    return _largest(kinds)


def _copies(ledger: MemoryLedger, at: tuple[int, str]) -> bool:
    return ledger.stages[at[0]].instants[at[1]].get("load_copy", 0.0) > 0


def _room(ledger: MemoryLedger) -> float:
    """Allocated bytes that fit: at the median where even that is exceeded, else at the ledger's risk."""
    room = ledger.usable_bytes - ledger.context_bytes - ledger.communicator_bytes
    if ledger.device_bytes > ledger.usable_bytes:
        return room / (ledger.allocated_median * ledger.fragmentation_median)
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
