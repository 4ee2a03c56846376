"""A training script that goes wrong once, in the way that FAULT names, at step 7 of the first attempt of each plan it
is told to. Losses are appended to losses-RANK.jsonl of the working directory with the step they belong to.
"""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from cost_models.specs.configuration import Configuration
from executor.backends import start, wrap
from executor.checkpoints import Keeper
from executor.environment import PLAN, REPORT
from executor.examples.train_llama import average, build, synthetic
from executor.instrument import Instrument
from tests.integration.executor.layouts import LENGTH, SIZES

STEPS, WRONG_AT = 12, 7


def go_wrong(fault: str) -> float:
    """The loss to be reported instead, where anything is still reported."""
    import torch

    first = int(os.environ["RANK"]) == 0
    if fault == "oom":
        torch.empty(2**29).fill_(1.0)
    if fault == "killed" and not first:
        os.kill(os.getpid(), signal.SIGKILL)
    return float("nan") if fault == "nan" else 0.0


def main() -> None:
    import torch

    plan = Configuration.model_validate(json.loads(Path(os.environ[PLAN]).read_text())["configuration"])
    fault = os.environ["FAULT"] if "attempt-0" in os.environ[REPORT] else ""
    start(plan)
    with Instrument.from_environment() as run:
        torch.manual_seed(0)
        model = build(plan, {**SIZES, "tie_word_embeddings": False}, LENGTH)
        trainer: Any = wrap(model, plan, learning_rate=3e-3)
        keeper, batches = Keeper.from_environment(), synthetic(plan, trainer.data_rank, LENGTH)
        done = keeper.restore(trainer)
        for _ in range(done):
            next(batches)
        began = time.monotonic()
        for index in range(done, STEPS if fault != "slow" else 40):
            usual = (time.monotonic() - began) / max(1, index - done)
            with run.step():
                loss = average(trainer.step(next(batches)))
                if fault and index == WRONG_AT:
                    loss = go_wrong(fault) or loss
                if fault == "slow" and index >= STEPS:
                    time.sleep(8 * usual)
            run.record_loss(loss)
            with Path(f"losses-{os.environ['RANK']}.jsonl").open("a") as file:
                file.write(json.dumps([index, loss]) + "\n")
            keeper.keep(trainer, index + 1)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
