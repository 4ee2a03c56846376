"""What one row measures: a model, how it is trained and on what batch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

PRECISIONS: Final = ("bf16-pure", "fp32", "fp32-autocast-bf16", "fsdp-mp")
OPTIMIZERS: Final = ("adamw-fused", "adamw-foreach", "adamw-loop", "adamw-fp32master")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One training step to be tracked."""

    model: str
    """A shipped preset or a config.json."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Keys of config.json that replace the model's: fewer layers make a row quick."""
    precision: str = "bf16-pure"
    micro_batch: int = 1
    sequence: int = 512
    recompute: str = "none"
    attention: str = "sdpa"
    optimizer: str = "adamw-fused"
    sharding: str = "1"
    """`1`, or `fsdp2:N` with N ranks, or `fsdp2:N:no_reshard`."""
    lora: str = ""
    """Target modules joined by +, or all-linear; empty trains all weights."""
    rank: int = 16
    four_bit: bool = False
    """Frozen linears stand in 4 bits: packed bytes and one fp32 scale for every 64 weights."""
    padded: bool = False
    """The batch carries a padding mask."""
    chunks: int = 1
    """Chunks that head and loss are computed in, each repeated in backward."""

    @property
    def world(self) -> int:
        """Ranks that shard."""
        return int(self.sharding.split(":")[1]) if ":" in self.sharding else 1

    @property
    def name(self) -> str:
        """The model and its adapters, as the column `model` spells them."""
        if not self.lora:
            return self.model
        kind = "qlora" if self.four_bit else "lora"
        return f"{self.model}+{kind}-r{self.rank}-{self.lora}"


def config_json(case: Case) -> dict[str, Any]:
    """The keys of config.json of a case's model, overrides applied.

    `family:NAME` stands for a transformers model type with the sizes that its configuration class defaults to.

    Raises:
        UnknownName: no preset has that name.
    """
    if case.model.startswith("family:"):
        found: dict[str, Any] = {"model_type": case.model.removeprefix("family:")}
    elif Path(case.model).suffix in {".json", ".yaml"}:
        found = yaml.safe_load(Path(case.model).read_text(encoding="utf-8"))
    else:
        from cost_models.hf_config import presets  # noqa: PLC0415  a config.json needs no catalogue

        found = dict(presets.presets()[presets.model(case.model).name].config)
    return {**found, **case.overrides}
