"""DeepSpeed's engine: ZeRO stages with offload, and AutoTP, as the exported configuration says."""

from pathlib import Path
from typing import Any

from cost_models.specs.configuration import Configuration
from executor.backends import llama
from executor.backends.lora import trained
from executor.backends.trainer import data_rank

_SHARDS, _OF_BF16 = "zero_pp_rank_", "bf16_"
"""Shards of optimizer and fp32 weights, and what stands before their names under bf16 alone.
Source: deepspeed `runtime/engine.py`, _get_zero_ckpt_name."""


class EngineState:
    """Saving and loading by the engine itself, which wants the same ZeRO stage and as many data ranks again.

    The shards of ZeRO hold fp32 whatever the precision, so a wider one goes on from them as if nothing had happened.
    """

    _engine: Any

    def save(self, folder: Path) -> None:
        """Every process writes its shards."""
        self._engine.save_checkpoint(str(folder), tag="state")

    def load(self, folder: Path) -> None:
        """Every process reads its shards, those of another precision too."""
        import torch

        if torch.distributed.get_rank() == 0:
            name_for_all(folder / "state")
        torch.distributed.barrier()
        self._engine.load_checkpoint(str(folder), tag="state")


def name_for_all(folder: Path) -> None:
    """Give each shard the name too under which an engine of the other precision looks for it."""
    for path in sorted(folder.glob(f"*{_SHARDS}*")):
        plain = path.name.removeprefix(_OF_BF16)
        other = folder / (plain if path.name != plain else _OF_BF16 + plain)
        if not other.exists():
            other.symlink_to(path.name)


class EngineTrainer(EngineState):
    """`deepspeed.initialize` around the whole model."""

    def __init__(self, model: Any, configuration: Configuration, learning_rate: float, config: dict[str, Any]) -> None:
        """The engine moves and splits the model."""
        import deepspeed
        import torch

        recompute = configuration.stages[0].recompute
        llama.recompute_blocks(llama.blocks(model), recompute.full, recompute.selective)
        engine, *_ = deepspeed.initialize(model=model, model_parameters=trained(model), config=config)
        for group in engine.optimizer.param_groups:
            group["lr"] = learning_rate
        self._engine, self.device = engine, engine.device
        self.data_rank = data_rank(configuration, torch.distributed.get_rank())
        self._micro_batch_size = configuration.micro_batch_size

    def step(self, tokens: Any) -> Any:
        """The engine accumulates and updates by itself."""
        total = 0.0
        parts = tokens.split(self._micro_batch_size)
        for part in parts:
            loss = self._engine(input_ids=part, labels=part).loss
            self._engine.backward(loss)
            self._engine.step()
            total = total + loss.detach().float() / len(parts)
        return total
