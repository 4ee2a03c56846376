"""A worker of torchrun: trains one small Llama under each configuration of a file, and by a plain loop; rank 0 prints
the losses as JSON. Everything runs in one launch, since imports take longer than training.
"""

import json
import logging
import sys
from pathlib import Path
from typing import Any

from cost_models.specs.configuration import Configuration
from executor.backends import start, wrap
from executor.backends.lora import adapt, trained
from executor.examples.train_llama import average, build, synthetic

SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 128,
}
LENGTH, STEPS, LEARNING_RATE = 32, 8, 3e-3


def train(configuration: Configuration, tied: bool, config: dict[str, Any] | None) -> list[float]:
    import torch

    start(configuration)
    torch.manual_seed(0)
    model = build(configuration, {**SIZES, "tie_word_embeddings": tied}, LENGTH)
    trainer = wrap(model, configuration, learning_rate=LEARNING_RATE, deepspeed_config=config)
    batches = synthetic(configuration, trainer.data_rank, LENGTH)
    return [average(trainer.step(next(batches).to(trainer.device))) for _ in range(STEPS)]


def reference(configuration: Configuration, tied: bool, steps: int = STEPS) -> list[float]:
    """One process, whole batches, nothing wrapped."""
    import torch

    alone = configuration.model_copy(
        update={
            "data_parallel": 1,
            "pipeline_parallel": 1,
            "micro_batch_size": configuration.global_batch_size,
            "gradient_accumulation_steps": 1,
        }
    )
    torch.manual_seed(0)
    model = build(alone, {**SIZES, "tie_word_embeddings": tied}, LENGTH)
    if alone.lora is not None:
        adapt(model, alone)
    optimizer = torch.optim.AdamW(trained(model), lr=LEARNING_RATE)
    batches, losses = synthetic(alone, 0, LENGTH), []
    for _ in range(steps):
        tokens = next(batches)
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses


def main() -> None:
    import torch

    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    found = {}
    for name, case in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")).items():
        configuration = Configuration.model_validate(case["configuration"])
        found[name] = {
            "losses": train(configuration, case["tied"], case["config"]),
            "reference": reference(configuration, case["tied"]),
        }
    if torch.distributed.get_rank() == 0:
        Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
    torch.distributed.barrier()  # as in compressions.py: nobody leaves while another has work under way
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
