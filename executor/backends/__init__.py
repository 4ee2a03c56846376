"""Back ends that train a plan's model: one small module each, all behind `trainer.Trainer`.

    choice            which wrappers a configuration means, without torch
    trainer           the protocol; ranks, meshes, optimizers, loss
    llama             how models laid out as Hugging Face's Llama split into blocks, shards and stages
    lora              adapters beside frozen weights, by peft
    ddp, fsdp, pipeline, tensor_parallel         torch
    deepspeed, deepspeed_pipeline                DeepSpeed

A training script calls `start` once, before it builds its model, and `wrap` on the model.
"""

from typing import Any

from cost_models.specs.configuration import Configuration
from executor.backends.choice import wrapper
from executor.backends.trainer import Trainer


def start(configuration: Configuration) -> Any:
    """Join the processes of the run; the device of this one."""
    import torch

    if configuration.backend.name == "deepspeed":
        import deepspeed

        deepspeed.init_distributed(verbose=False)
    from executor.backends.trainer import local_device

    device = local_device()
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return device


def wrap(
    model: Any, configuration: Configuration, *, learning_rate: float, deepspeed_config: dict[str, Any] | None = None
) -> Trainer:
    """The model under the plan's back end, ready for `step`.

    Raises:
        PlanRefused: the back end here does not run the configuration.
    """
    name = wrapper(configuration)
    if configuration.lora is not None:
        from executor.backends.lora import adapt

        adapt(model, configuration)
    if name in {"deepspeed", "deepspeed_pipeline"}:
        assert deepspeed_config is not None
        if name == "deepspeed":
            from executor.backends.deepspeed import EngineTrainer

            return EngineTrainer(model, configuration, learning_rate, deepspeed_config)
        from executor.backends.deepspeed_pipeline import PipelineEngineTrainer

        return PipelineEngineTrainer(model, configuration, learning_rate, deepspeed_config)
    if name == "ddp":
        from executor.backends.ddp import DdpTrainer

        return DdpTrainer(model, configuration, learning_rate)
    if name == "fsdp":
        from executor.backends.fsdp import FsdpTrainer

        return FsdpTrainer(model, configuration, learning_rate)
    from executor.backends.pipeline import PipelineTrainer

    return PipelineTrainer(model, configuration, learning_rate)
