"""Which configurations are trained: every back end and ZeRO stage, each on models and batches of its own."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

PROCESSES: Final = 2


@dataclass(frozen=True, slots=True)
class Shape:
    """A small Llama."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    vocab_size: int


SHAPES: Final = {
    "h256-l4": Shape(256, 4, 4, 688, 4096),
    "h512-l4": Shape(512, 4, 8, 1408, 8192),
    "h512-l8": Shape(512, 8, 8, 1408, 8192),
    "h768-l4": Shape(768, 4, 12, 2048, 8192),
}
TINY: Final = {"h64-l2": Shape(64, 2, 4, 128, 256)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A model and how one process feeds it."""

    shape: str
    micro_batch: int
    sequence: int
    recompute: str = "none"
    precision: str = "fp32"
    accumulation: int = 1


SETTINGS: Final = (
    Setting(shape="h256-l4", micro_batch=4, sequence=256),
    Setting(shape="h512-l4", micro_batch=2, sequence=256),
    Setting(shape="h512-l8", micro_batch=1, sequence=512, recompute="full", precision="bf16"),
    Setting(shape="h768-l4", micro_batch=1, sequence=256, accumulation=2, precision="bf16"),
    Setting(shape="h512-l8", micro_batch=2, sequence=128, recompute="full"),
    Setting(shape="h256-l4", micro_batch=8, sequence=128, accumulation=2, precision="bf16"),
    Setting(shape="h768-l4", micro_batch=2, sequence=128),
    Setting(shape="h512-l4", micro_batch=1, sequence=512, precision="bf16"),
    Setting(shape="h512-l8", micro_batch=2, sequence=128, precision="bf16"),
    Setting(shape="h256-l4", micro_batch=2, sequence=512, recompute="full", accumulation=2),
)
BACKENDS: Final = (
    ("ddp", 0), ("fsdp", 2), ("fsdp", 3), ("deepspeed", 0), ("deepspeed", 1), ("deepspeed", 2), ("deepspeed", 3),
)  # fmt: skip
EACH: Final = 7
"""Settings of each back end and stage."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One configuration to be trained."""

    backend: str
    zero_stage: int
    setting: Setting
    shape: Shape

    @property
    def name(self) -> str:
        """Unique, and stable between releases of this script."""
        s = self.setting
        batch = f"{s.micro_batch}x{s.sequence}x{s.accumulation}"
        return f"{self.backend}-zero{self.zero_stage}-{s.shape}-{batch}-{s.recompute}-{s.precision}"

    def request(self) -> dict[str, Any]:
        """The request of an estimate of exactly this, less the cluster."""
        s, shape = self.setting, self.shape
        sizes = {name: getattr(shape, name) for name in Shape.__dataclass_fields__}
        return {
            "model": {"architecture": {**sizes, "tie_word_embeddings": False}},
            "training": {
                "sequence_length": s.sequence,
                "global_batch_size": s.micro_batch * s.accumulation * PROCESSES,
                "precision": s.precision,
                "attention": "sdpa",
            },
            "backend": self.backend,
            "configuration": {
                "data_parallel": PROCESSES,
                "zero_stage": self.zero_stage,
                "micro_batch_size": s.micro_batch,
                "gradient_accumulation_steps": s.accumulation,
                "recompute": s.recompute,
                "cross_entropy": "eager",
            },
        }


def planned(*, tiny: bool = False) -> Iterator[Planned]:
    """In an order that shows every back end early, so that a stopped script has seen them all."""
    if tiny:
        for (backend, stage), precision in zip((("ddp", 0), ("fsdp", 3)), ("fp32", "bf16"), strict=True):
            setting = Setting(shape="h64-l2", micro_batch=2, sequence=32, precision=precision)
            yield Planned(backend, stage, setting, TINY["h64-l2"])
        return
    for turn in range(EACH):
        for index, (backend, stage) in enumerate(BACKENDS):
            # A step of 3 runs through all ten settings; back ends begin at different ones.
            setting = SETTINGS[(3 * turn + index) % len(SETTINGS)]
            yield Planned(backend, stage, setting, SHAPES[setting.shape])
