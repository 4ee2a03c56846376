"""DistributedDataParallel with compressed gradients where the plan says so; autocast for 16 bits."""

from contextlib import nullcontext
from typing import Any

from cost_models.specs.configuration import Configuration
from executor.backends import llama
from executor.backends.compression import compress
from executor.backends.lora import trained
from executor.backends.trainer import TorchState, data_rank, local_device, optimizer


class DdpTrainer(TorchState):
    """Gradients are reduced in the backward pass of the last micro-batch."""

    def __init__(self, model: Any, configuration: Configuration, learning_rate: float) -> None:
        """Replicate the model."""
        import torch

        c = configuration
        self.device = local_device()
        self.data_rank = data_rank(c, torch.distributed.get_rank())
        self._micro_batch_size = c.micro_batch_size
        # Beside adapters the frozen weights are in the compute dtype themselves.
        self._dtype = None if c.lora else {"bf16": torch.bfloat16, "fp16": torch.float16}.get(c.precision)
        self._scaler = torch.amp.GradScaler(self.device.type, enabled=c.precision == "fp16")
        llama.recompute_blocks(llama.blocks(model), c.stages[0].recompute.full, c.stages[0].recompute.selective)
        self._model = torch.nn.parallel.DistributedDataParallel(model.to(self.device))
        self.compressor = compress(self._model, c.gradient_compression)
        self._optimizer = optimizer(c, trained(model), learning_rate)

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
