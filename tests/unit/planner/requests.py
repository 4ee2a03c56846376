"""Requests that the tests of the planner start from."""

import copy
from typing import Any

GOOD: dict[str, Any] = {
    "model": {"preset": "llama-2-7b"},
    "cluster": {"pools": [{"device": "a100-sxm-80gb", "nodes": 1, "gpus_per_node": 8}]},
    "training": {"sequence_length": 4096, "global_batch_size": 128},
}
SMALL: dict[str, Any] = {
    "model": {
        "architecture": {
            "hidden_size": 1024,
            "num_hidden_layers": 8,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
            "vocab_size": 32000,
        }
    },
    "cluster": {"pools": [{"device": "a100-sxm-40gb", "nodes": 1, "gpus_per_node": 2}]},
    "training": {"sequence_length": 1024, "global_batch_size": 8},
    "backend": "deepspeed",
}
ABSENT = object()


def changed(path: str, value: Any, base: dict[str, Any] = GOOD) -> dict[str, Any]:
    """The base with the value at a dotted path replaced, or removed with ABSENT."""
    data = copy.deepcopy(base)
    place: Any = data
    *parents, last = path.split(".")
    for key in parents:
        place = place[int(key)] if isinstance(place, list) else place.setdefault(key, {})
    if value is ABSENT:
        del place[last]
    else:
        place[last] = value
    return data
