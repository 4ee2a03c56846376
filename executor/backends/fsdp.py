"""FSDP2: `fully_shard` by layer and over the rest, beside DTensor tensor parallelism."""

from typing import Any

from cost_models.specs.configuration import Configuration
from executor.backends import llama
from executor.backends.lora import trained
from executor.backends.tensor_parallel import parallelize
from executor.backends.trainer import TorchState, data_rank, device_mesh, local_device, optimizer


def shard(module: Any, layers: Any, mesh: Any, configuration: Configuration) -> None:
    """Shard weights, gradients and optimizer states: ZeRO-3 gathers weights again in backward, ZeRO-2 keeps them."""
    import torch
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

    c = configuration
    compute = torch.bfloat16 if c.precision == "bf16" else None
    reduce = torch.bfloat16 if c.gradient_compression == "bf16" else torch.float32
    settings: dict[str, Any] = {
        "mesh": mesh,
        "mp_policy": MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=reduce),
        "offload_policy": CPUOffloadPolicy() if c.parameter_offload else OffloadPolicy(),
    }
    for layer in layers:
        fully_shard(layer, reshard_after_forward=c.zero_stage == 3, **settings)
    # What is left over stays gathered until backward, which begins with it: fully_shard's own default for a root.
    fully_shard(module, **settings)


class FsdpTrainer(TorchState):
    """Every micro-batch reduces its gradients into the shards."""

    def __init__(self, model: Any, configuration: Configuration, learning_rate: float) -> None:
        """Split over tensor-parallel ranks first, then shard over data ranks."""
        import torch

        self.device = local_device()
        self.data_rank = data_rank(configuration, torch.distributed.get_rank())
        self._micro_batch_size = configuration.micro_batch_size
        mesh = device_mesh(configuration, self.device)
        model.to(self.device)
        recompute = configuration.stages[0].recompute
        llama.recompute_blocks(llama.blocks(model), recompute.full, recompute.selective)
        if configuration.tensor_parallel > 1:
            sequence_parallel = configuration.sequence_parallel
            layers = llama.blocks(model)
            parallelize(model, layers, model.config, mesh["tp"], inner="model.", sequence_parallel=sequence_parallel)
            llama.tie_again(model)
        shard(model, llama.blocks(model), mesh["dp"], configuration)
        self._model = model
        self._optimizer = optimizer(configuration, trained(model), learning_rate)

    def step(self, tokens: Any) -> Any:
        """Accumulate over micro-batches, then update."""
        total = 0.0
        parts = tokens.split(self._micro_batch_size)
        for part in parts:
            loss = self._model(input_ids=part, labels=part).loss
            (loss / len(parts)).backward()
            total = total + loss.detach() / len(parts)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return total
