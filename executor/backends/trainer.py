"""What every back end offers, and what the torch ones share: ranks, meshes, optimizers, the loss."""

import os
from pathlib import Path
from typing import Any, Protocol

from cost_models.specs.configuration import Configuration


class Trainer(Protocol):
    """A model with its optimizer, spread over the processes as the plan says."""

    device: Any
    data_rank: int
    """Which share of the global batch this process reads; the same throughout a tensor-parallel group or pipeline."""

    def step(self, tokens: Any) -> Any:
        """One optimizer step on this data rank's (micro-batches x micro-batch size, sequence length) token ids.

        The mean loss over them, as a detached scalar; every process of the data rank gets it.
        """

    def save(self, folder: Path) -> None:
        """Write weights and optimizer states; every process takes part."""

    def load(self, folder: Path) -> None:
        """Read what `save` wrote."""


class TorchState:
    """Saving and loading of a model and an optimizer in shards that fit any later mesh (torch.distributed.checkpoint).

    Names are the model's own, whatever wraps it, so that a checkpoint of one layout loads into another.
    """

    _model: Any
    _optimizer: Any

    def save(self, folder: Path) -> None:
        """Every process writes what it holds."""
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import get_state_dict

        weights, states = get_state_dict(self._model, self._optimizer)
        dcp.save({"model": weights, "optimizer": states}, checkpoint_id=folder)

    def load(self, folder: Path) -> None:
        """Every process reads what it holds now."""
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

        weights, states = get_state_dict(self._model, self._optimizer)
        dcp.load({"model": weights, "optimizer": states}, checkpoint_id=folder)
        set_state_dict(self._model, self._optimizer, model_state_dict=weights, optim_state_dict=states)


def data_rank(configuration: Configuration, rank: int) -> int:
    """Ranks count tensor-parallel first, then data, then pipeline, in torch meshes and in DeepSpeed's topology."""
    return rank // configuration.tensor_parallel % configuration.data_parallel


def local_device() -> Any:
    """The CUDA device of this process, or the CPU."""
    import torch

    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def device_mesh(configuration: Configuration, device: Any) -> Any:
    """Named dimensions pp, dp and tp, in the order of `data_rank`."""
    from torch.distributed.device_mesh import init_device_mesh

    c = configuration
    shape = (c.pipeline_parallel, c.data_parallel, c.tensor_parallel)
    return init_device_mesh(device.type, shape, mesh_dim_names=("pp", "dp", "tp"))


def gather_into(whole: Any, share: Any) -> None:
    """All-gather equal shares into one tensor."""
    import torch.distributed as dist

    # Renamed in torch 2.13.
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    gather(whole, share)


def optimizer(configuration: Configuration, parameters: Any, learning_rate: float) -> Any:
    """The plan's optimizer. Fused where every parameter is laid out alike: no temporaries of the parameters' size."""
    import torch

    if configuration.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=learning_rate, momentum=0.9)
    one_layout = configuration.tensor_parallel == 1
    return torch.optim.AdamW(parameters, lr=learning_rate, foreach=False, fused=one_layout)


def causal_loss(logits: Any, tokens: Any) -> Any:
    """Mean cross entropy of every next token, in fp32."""
    import torch

    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())
