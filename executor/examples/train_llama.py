"""Train a small Llama on synthetic tokens, by the back end and the layout that the plan says.

    meshwright-exec run plan.json -- executor/examples/train_llama.py --steps 20

Everything comes from the plan: the model's shape, the sequence length, batch, precision, parallelism, ZeRO stage and
recompute; `executor.backends` wraps the model accordingly. `--model` (a Hugging Face config.json, or the JSON of a
resolved model) and the flags put other sizes in their place.
Each token of a small alphabet follows from the one before it, so that the loss must fall.
"""

import argparse
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cost_models.specs.configuration import Configuration
from executor.backends import llama, start, wrap
from executor.backends.choice import check_trained
from executor.checkpoints import Keeper
from executor.environment import DEEPSPEED_CONFIG, PLAN
from executor.instrument import Instrument

ALPHABET = 64
SHAPE = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
)


def arguments() -> argparse.Namespace:
    """The flags; the launchers' own `--local_rank` is accepted and ignored."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="JSON with the sizes of the model (default: the plan's)")
    for name in SHAPE:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int)
    parser.add_argument("--sequence-length", type=int, help="default: the plan's")
    parser.add_argument("--steps", type=int, help="default: as many as the measurement needs")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--local_rank", "--local-rank", type=int, default=0, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Train."""
    options = arguments()
    document = json.loads(Path(os.environ[PLAN]).read_text(encoding="utf-8"))
    plan, request = Configuration.model_validate(document["configuration"]), document["request"]
    check_trained(plan)
    if request["training"].get("method") == "qlora":
        raise SystemExit("this script trains adapters beside weights of 16 or 32 bits; the plan's are of 4")
    length = options.sequence_length or request["training"]["sequence_length"]
    written = os.environ.get(DEEPSPEED_CONFIG)
    settings = json.loads(Path(written).read_text(encoding="utf-8")) if written else None
    # Everything heavy is imported before the instrument takes its baseline.
    import torch
    from transformers import LlamaForCausalLM  # noqa: F401

    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    start(plan)
    torch.manual_seed(options.seed)
    with Instrument.from_environment() as run:
        model = build(plan, shape(options, request["model"]), length)
        trainer = wrap(model, plan, learning_rate=options.learning_rate, deepspeed_config=settings)
        batches = synthetic(plan, trainer.data_rank, length)
        keeper = Keeper.from_environment()
        done = keeper.restore(trainer)
        for _ in range(done):
            next(batches)
        for index in range(done, options.steps or run.needed_steps):
            with run.step():
                loss = trainer.step(next(batches).to(trainer.device))
            run.record_loss(average(loss))
            if torch.distributed.get_rank() == 0:
                print(f"step {index + 1} loss {run.losses[-1]:.6f}", flush=True)
            if keeper.due(index + 1):
                with run.phase("save"):
                    keeper.keep(trainer, index + 1)
    torch.distributed.destroy_process_group()


def shape(options: argparse.Namespace, planned: dict[str, Any]) -> dict[str, Any]:
    """Sizes of the model: the plan's or the file's, and over them the flags."""
    stated = json.loads(options.model.read_text(encoding="utf-8")) if options.model else planned
    if stated.get("moe") or stated.get("mla") or not stated.get("gated_mlp", True):
        raise SystemExit(f"this script trains Llamas; {stated.get('name', 'the model')} is none")
    sizes = {name: getattr(options, name) or stated.get(name) for name in SHAPE}
    missing = [name for name, value in sizes.items() if value is None]
    if missing:
        raise SystemExit(f"the model's {', '.join(missing)} must be given, by --model FILE or by flags")
    return {"tie_word_embeddings": bool(stated.get("tie_word_embeddings", False)), **sizes}


def build(plan: Configuration, sizes: dict[str, Any], sequence_length: int) -> Any:
    """A Llama of those sizes with the plan's attention; for a pipeline its shape alone, as stages are made from it."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    attention = "eager" if plan.attention == "eager" else "sdpa"
    config = LlamaConfig(
        **sizes, max_position_embeddings=sequence_length, use_cache=False, attn_implementation=attention
    )
    with torch.device("meta"):
        model = LlamaForCausalLM(config).train()
    if plan.pipeline_parallel == 1:
        llama.materialise(model, model, torch.device("cpu"))
        llama.tie_again(model)
    return model


def synthetic(plan: Configuration, data_rank: int, sequence_length: int) -> Iterator[Any]:
    """Endless shares of global batches: the same sequences however many data ranks divide them."""
    import torch

    generator = torch.Generator().manual_seed(100)
    share = plan.gradient_accumulation_steps * plan.micro_batch_size
    while True:
        tokens = [torch.randint(0, ALPHABET, (plan.global_batch_size,), generator=generator)]
        for _ in range(sequence_length - 1):
            # A linear congruence of full period (Hull and Dobell): every sequence runs through the whole alphabet.
            tokens.append((5 * tokens[-1] + 3) % ALPHABET)
        yield torch.stack(tokens, dim=1)[data_rank * share : (data_rank + 1) * share]


def average(loss: Any) -> float:
    """The loss over all ranks."""
    import torch

    torch.distributed.all_reduce(loss)
    return float(loss) / int(torch.distributed.get_world_size())


if __name__ == "__main__":
    main()
