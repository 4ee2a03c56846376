"""DistributedDataParallel, with torch's communication hooks as gradient compression; autocast for 16 bits."""

from contextlib import nullcontext
from typing import Any

from cost_models.specs.configuration import Configuration
from executor.backends import llama
from executor.backends.trainer import data_rank, local_device, optimizer

POWERSGD_RANK = 4
"""Vogels et al., arXiv:1905.13727, section 5: rank 4 reaches the accuracy of SGD on language models."""


class DdpTrainer:
    """Gradients are reduced in the backward pass of the last micro-batch."""

    def __init__(self, model: Any, configuration: Configuration, learning_rate: float) -> None:
        """Replicate the model."""
        import torch

        c = configuration
        self.device = local_device()
        self.data_rank = data_rank(c, torch.distributed.get_rank())
        self._micro_batch_size = c.micro_batch_size
        self._dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(c.precision)
        self._scaler = torch.amp.GradScaler(self.device.type, enabled=c.precision == "fp16")
        llama.recompute_blocks(llama.blocks(model), c.stages[0].recompute.full)
        self._model = torch.nn.parallel.DistributedDataParallel(model.to(self.device))
        _compress(self._model, c.gradient_compression)
        self._optimizer = optimizer(c, model.parameters(), learning_rate)

    def step(self, tokens: Any) -> Any:
        """Accumulate over micro-batches, reduce once, then update."""
        import torch

        total = 0.0
        parts = tokens.split(self._micro_batch_size)
        for index, part in enumerate(parts):
            last = index == len(parts) - 1
            with nullcontext() if last else self._model.no_sync():
                with torch.autocast(self.device.type, self._dtype, enabled=self._dtype is not None):
                    loss = self._model(input_ids=part, labels=part).loss
                self._scaler.scale(loss / len(parts)).backward()
            total = total + loss.detach().float() / len(parts)
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._optimizer.zero_grad()
        return total


def _compress(model: Any, compression: str) -> None:
    """Register the hook of a `gradient_compression`."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    if compression == "powersgd":
        # The hook starts to compress at its third iteration at the earliest: DDP rebuilds its buckets before.
        state = powerSGD_hook.PowerSGDState(
            process_group=None, matrix_approximation_rank=POWERSGD_RANK, start_powerSGD_iter=2
        )
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif compression == "fp16":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif compression == "bf16":

        def bf16_hook(state: Any, bucket: Any) -> Any:
            # Under its own name DDP takes the hook with NCCL alone; gloo sums bf16 as well.
            return default_hooks.bf16_compress_hook(state, bucket)

        bf16_hook.__annotations__ = {}
        model.register_comm_hook(None, bf16_hook)
