"""Memory of one rank, as an event ledger: what each operator keeps, what is alive at each instant, why the peak is
where it is.
"""

from cost_models.memory.allocator import allocated_factors, error_regime, exponent, regime_of, regimes_of
from cost_models.memory.explain import memory_ledger
from cost_models.memory.pricing import memory_table
from cost_models.memory.replay import reserved_ratio

__all__ = [
    "allocated_factors",
    "error_regime",
    "exponent",
    "memory_ledger",
    "memory_table",
    "regime_of",
    "regimes_of",
    "reserved_ratio",
]
