"""DeepSpeed's PipelineModule: equal stages of whole layers, ZeRO 0 or 1 over data ranks."""

from typing import Any

from cost_models.specs.configuration import Configuration
from executor.backends import llama
from executor.backends.deepspeed import EngineState
from executor.backends.trainer import causal_loss, data_rank


class PipelineEngineTrainer(EngineState):
    """`PipelineEngine.train_batch`."""

    def __init__(self, model: Any, configuration: Configuration, learning_rate: float, config: dict[str, Any]) -> None:
        """Lay the model out as a list of layers, of which the engine makes its own.

        Raises:
            PlanRefused: tied embeddings.
        """
        import deepspeed
        import torch
        from deepspeed.pipe import PipelineModule

        c = configuration
        llama.check_stages(model)
        parts, block = layer_list(model)
        module = PipelineModule(
            layers=parts,
            num_stages=c.pipeline_parallel,
            loss_fn=causal_loss,
            partition_method=f"type:^{block}$",
            activation_checkpoint_interval=1 if c.stages[0].recompute.full else 0,
            checkpointable_layers=[block],
        )
        self._engine, *_ = deepspeed.initialize(model=module, model_parameters=module.parameters(), config=config)
        for group in self._engine.optimizer.param_groups:
            group["lr"] = learning_rate
        self.device = self._engine.device
        self.data_rank = data_rank(c, torch.distributed.get_rank())
        self._micro_batch_size = c.micro_batch_size

    def step(self, tokens: Any) -> Any:
        """One pass through the pipeline; the engine averages the loss over data ranks and tells every stage."""
        parts = tokens.split(self._micro_batch_size)
        return self._engine.train_batch(iter([(part, part) for part in parts])).detach().float()


def layer_list(model: Any) -> tuple[list[Any], str]:
    """Embedding, blocks, norm with head, each made where it is kept; and the name of the blocks' class."""
    import torch
    from deepspeed.pipe import LayerSpec

    inner, device = model.model, torch.device("cpu")  # the engine moves what it has built

    class Block(torch.nn.Module):  # type: ignore[misc]  # torch's types are not followed
        def __init__(self, index: int) -> None:
            super().__init__()
            self.layer = llama.blocks(model)[index]
            self.rotary_emb = type(inner.rotary_emb)(model.config)
            llama.materialise(self, model, device)

        def forward(self, hidden: Any) -> Any:
            """One layer."""
            return llama.run_block(self.layer, self.rotary_emb, hidden, hidden.shape[1])

    class Ends(torch.nn.Sequential):  # type: ignore[misc]  # torch's types are not followed
        def __init__(self, *parts: Any) -> None:
            super().__init__(*parts)
            llama.materialise(self, model, device)

    blocks = [LayerSpec(Block, index) for index in range(len(llama.blocks(model)))]
    return [LayerSpec(Ends, inner.embed_tokens), *blocks, LayerSpec(Ends, inner.norm, model.lm_head)], Block.__name__
