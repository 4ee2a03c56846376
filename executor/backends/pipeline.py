"""torch.distributed.pipelining: stages of whole layers, each sharded and split as without a pipeline."""

from pathlib import Path
from typing import Any

from cost_models.specs.configuration import Configuration
from executor.backends import llama
from executor.backends.choice import schedule
from executor.backends.fsdp import shard
from executor.backends.tensor_parallel import parallelize
from executor.backends.trainer import causal_loss, data_rank, device_mesh, local_device, optimizer
from executor.errors import PlanRefused


class PipelineTrainer:
    """1F1B, interleaved with several stages a process; GPipe where micro-batches are fewer than stages."""

    def __init__(self, model: Any, configuration: Configuration, learning_rate: float) -> None:
        """Keep this process' stages of the model, which may be on the meta device.

        Raises:
            PlanRefused: tied embeddings.
        """
        import torch
        from torch.distributed import pipelining
        from torch.distributed.pipelining import PipelineStage

        c = configuration
        llama.check_stages(model)
        self.device = local_device()
        self.data_rank = data_rank(c, torch.distributed.get_rank())
        mesh = device_mesh(c, self.device)
        self._group = mesh["pp"].get_group()
        mine = mesh["pp"].get_local_rank()
        self._first, self._last = mine == 0, mine == c.pipeline_parallel - 1
        total = c.pipeline_parallel * c.virtual_pipeline_stages
        stages, parameters = [], []
        self._modules: list[Any] = []
        for index, (first, last, recomputed) in enumerate(chunks(c)):
            if index % c.pipeline_parallel != mine:
                continue
            module = llama.materialise(llama.stage_module(model, first, last), model, self.device)
            llama.recompute_blocks(module.layers, recomputed)
            if c.tensor_parallel > 1:
                parallelize(module, module.layers, model.config, mesh["tp"], inner="", sequence_parallel=False)
            shard(module, module.layers, mesh["dp"], c)
            self._modules.append(module)
            stages.append(PipelineStage(module, index, total, self.device, group=self._group))
            parameters += list(module.parameters())
        llama.forget_parts(model)
        kind = getattr(pipelining, schedule(c))
        one = stages[0] if c.virtual_pipeline_stages == 1 else stages
        self._schedule = kind(one, c.gradient_accumulation_steps, loss_fn=causal_loss)
        self._optimizer = optimizer(c, parameters, learning_rate)

    def step(self, tokens: Any) -> Any:
        """Run the schedule, update, and tell every stage the loss."""
        import torch

        losses: list[Any] = []
        inputs = (tokens,) if self._first else ()
        targets = {"target": tokens, "losses": losses} if self._last else {}
        self._schedule.step(*inputs, **targets)
        self._optimizer.step()
        self._optimizer.zero_grad()
        loss = torch.stack(losses).mean().detach() if losses else torch.zeros((), device=self.device)
        torch.distributed.broadcast(
            loss, group_src=torch.distributed.get_world_size(self._group) - 1, group=self._group
        )
        return loss

    def save(self, folder: Path) -> None:
        """Every process writes its stages; they load into the same stages only."""
        import torch

        states = [module.state_dict() for module in self._modules]
        torch.save({"model": states, "optimizer": self._optimizer.state_dict()}, folder / _rank_file())

    def load(self, folder: Path) -> None:
        """Every process reads its stages."""
        import torch

        # What this package wrote itself holds placements of shards beside tensors.
        state = torch.load(folder / _rank_file(), weights_only=False)
        for module, weights in zip(self._modules, state["model"], strict=True):
            module.load_state_dict(weights)
        self._optimizer.load_state_dict(state["optimizer"])


def _rank_file() -> str:
    import torch

    return f"rank-{torch.distributed.get_rank()}.pt"


def chunks(configuration: Configuration) -> list[tuple[int, int, int]]:
    """(first layer, last layer exclusive, recomputed layers) of each stage of the schedule, front to back.

    Process p holds stages p, p + pp, p + 2 pp, ... (arXiv:2104.04473 section 2.2), layers in equal parts.

    Raises:
        PlanRefused: a process' layers do not divide by its stages.
    """
    c, v = configuration, configuration.virtual_pipeline_stages
    found, first = [], 0
    for turn in range(v):
        for stage in c.stages:
            if stage.layers % v:
                raise PlanRefused(f"virtual_pipeline_stages {v} does not divide the {stage.layers} layers of a stage")
            each = stage.layers // v
            recomputed = min(each, max(0, stage.recompute.full - turn * each))
            found.append((first, first + each, recomputed))
            first += each
    return found
