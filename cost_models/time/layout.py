"""Which layers a stage holds, and which of them are recomputed."""

from collections.abc import Hashable, Iterable
from itertools import groupby
from typing import TypeVar

from cost_models.errors import BrokenRule
from cost_models.schedule import chunk_sizes
from cost_models.specs.choices import Recompute
from cost_models.specs.configuration import Configuration
from cost_models.specs.model import LayerKind, ModelSpec

Item = TypeVar("Item", bound=Hashable)


def stage_layers(model: ModelSpec, configuration: Configuration) -> list[list[tuple[LayerKind, Recompute]]]:
    """Kind and recompute mode of every layer of every stage, in the order they run there.

    Without interleaving a stage holds consecutive layers. With v chunks a stage, chunk by chunk round the stages.
    The first layers of a stage are the fully recomputed ones, then the selectively recomputed.
    Source: arXiv:2104.04473 figure 4 (chunk order); Megatron-LM `transformer_block.py` (block recompute).

    Raises:
        BrokenRule: the stages' layers do not add up to the model's.
    """
    counts = tuple(stage.layers for stage in configuration.stages)
    if sum(counts) != model.num_hidden_layers:
        raise BrokenRule(f"stages hold {sum(counts)} layers but num_hidden_layers is {model.num_hidden_layers}")
    v = configuration.virtual_pipeline_stages
    kinds: list[list[LayerKind]] = [[] for _ in counts]
    sequence = iter(model.layer_sequence)
    sizes = chunk_sizes(counts, v)
    for chunk in range(v):
        for s in range(len(counts)):
            kinds[s] += [next(sequence) for _ in range(sizes[s][chunk])]
    return [list(zip(k, _modes(configuration, s), strict=True)) for s, k in enumerate(kinds)]


def counted(items: Iterable[Item]) -> dict[Item, int]:
    """How many are alike, in the order of the first of each. A run of equal ones is looked up once."""
    result: dict[Item, int] = {}
    for item, run in groupby(items):
        result[item] = result.get(item, 0) + sum(1 for _ in run)
    return result


def _modes(configuration: Configuration, stage: int) -> list[Recompute]:
    counts = configuration.stages[stage].recompute
    full: list[Recompute] = ["full"] * counts.full
    return [*full, *["selective"] * counts.selective, *["none"] * counts.none]  # type: ignore[list-item]
