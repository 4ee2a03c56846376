"""Seconds of one optimizer step: a sum of named terms, from the work of a layer to the end of the pipeline."""

from cost_models.time.communication import communication_table
from cost_models.time.explain import time_ledger
from cost_models.time.pricing import time_table

__all__ = ["communication_table", "time_ledger", "time_table"]
