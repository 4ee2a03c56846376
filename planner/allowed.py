"""Whether a configuration obeys what a request allows its decisions to be."""

from collections.abc import Iterator
from typing import Any

from cost_models.specs.choices import RECOMPUTES
from cost_models.specs.configuration import Configuration
from cost_models.strategy import Strategy
from planner.constraints import Constraints


def outside_domains(constraints: Constraints, configuration: Configuration) -> Iterator[str]:
    """Each decision that is none of the values allowed, with both sides."""
    strategy = Strategy.of(configuration)
    columns = {**strategy.configuration_columns(), "optimizer_offload": bool(strategy.optimizer_offload)}
    columns["recompute_interval"] = int(strategy.recompute_interval)
    modes = tuple(mode for mode in RECOMPUTES if any(getattr(stage.recompute, mode) for stage in configuration.stages))
    for name, domain in constraints.domains().items():
        values: tuple[Any, ...] = modes if name == "recompute" else (columns[name],)
        for value in values:
            if not domain.allows(value):
                yield f"{name} {value} is not {domain}"
