"""A worker of torchrun: trains one small Llama under each gradient compression; rank 0 writes losses and bytes sent."""

import json
import sys
from pathlib import Path
from typing import Any

from cost_models.specs.configuration import Configuration
from executor.backends import start
from executor.backends.ddp import DdpTrainer
from executor.examples.train_llama import average, build, synthetic
from tests.integration.executor.layouts import LENGTH, SIZES

LEARNING_RATE = 3e-3


def train(configuration: Configuration, steps: int) -> dict[str, Any]:
    import torch

    torch.manual_seed(0)
    model = build(configuration, {**SIZES, "tie_word_embeddings": False}, LENGTH)
    trainer = DdpTrainer(model, configuration, LEARNING_RATE)
    batches, losses, sent = synthetic(configuration, trainer.data_rank, LENGTH), [], [0.0]
    for _ in range(steps):
        losses.append(average(trainer.step(next(batches))))
        sent.append(trainer.compressor.sent_bytes if trainer.compressor else 0.0)
    total = sum(p.double().sum() for p in model.parameters())
    both = [torch.zeros_like(total) for _ in range(2)]
    torch.distributed.all_gather(both, total.detach())
    alike = bool(both[0] == both[1])
    return {"losses": losses, "sent": sent[-1] - sent[-2], "alike": alike}


def main() -> None:
    import torch

    case = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    configuration = Configuration.model_validate(case["configuration"])
    start(configuration)
    found = {
        name: train(configuration.model_copy(update={"gradient_compression": name}), case["steps"])
        for name in case["compressions"]
    }
    if torch.distributed.get_rank() == 0:
        Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
    # A process that leaves while the other still has work under way may end it: gloo's threads are torn down in use.
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
