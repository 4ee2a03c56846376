"""Memory of one rank, as an event ledger: what each operator keeps, what is alive at each instant, why the peak is
where it is.
"""

from cost_models.memory.allocator import error_regime, regime_of
from cost_models.memory.explain import memory_ledger
from cost_models.memory.pricing import memory_table
from cost_models.memory.replay import reserved_ratio

__all__ = ["error_regime", "memory_ledger", "memory_table", "regime_of", "reserved_ratio"]
