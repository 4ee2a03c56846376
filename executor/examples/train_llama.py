"""Train a small Llama on synthetic tokens with DeepSpeed, on whatever the plan says.

    meshwright-exec run plan.json -- executor/examples/train_llama.py --steps 20

Everything comes from the plan: the model's shape, the sequence length, batch, precision, ZeRO stage and recompute.
`--model` (a Hugging Face config.json, or the JSON of a resolved model) and the flags put other sizes in their place.
Each token of a small alphabet follows from the one before it, so that the loss must fall.
"""

import argparse
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
    # Everything heavy is imported before the instrument takes its baseline.
    import deepspeed
    import torch
    from transformers import LlamaForCausalLM  # noqa: F401

    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    document = json.loads(Path(os.environ[PLAN]).read_text(encoding="utf-8"))
    plan, request = document["configuration"], document["request"]
    length = options.sequence_length or request["training"]["sequence_length"]
    settings = json.loads(Path(os.environ[DEEPSPEED_CONFIG]).read_text(encoding="utf-8"))
    deepspeed.init_distributed(verbose=False)
    torch.manual_seed(options.seed)
    with Instrument.from_environment() as run:
        model = build(plan, shape(options, request["model"]), length)
        engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)
        for group in engine.optimizer.param_groups:
            group["lr"] = options.learning_rate
        batches = synthetic(plan["micro_batch_size"], length, engine.device)
        for index in range(options.steps or run.needed_steps):
            with run.step():
                loss = train_step(engine, batches, plan["gradient_accumulation_steps"])
            run.record_loss(average(loss))
            if torch.distributed.get_rank() == 0:
                print(f"step {index + 1} loss {run.losses[-1]:.4f}", flush=True)
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


def build(plan: dict[str, Any], sizes: dict[str, Any], sequence_length: int) -> Any:
    """A Llama of those sizes with the plan's attention and recompute."""
    from transformers import LlamaConfig, LlamaForCausalLM

    unsupported = {
        name: plan.get(name, 1)
        for name in ("tensor_parallel", "context_parallel", "pipeline_parallel", "expert_parallel")
        if plan.get(name, 1) != 1
    }
    if unsupported or plan.get("lora"):
        raise SystemExit(f"this script trains by data parallelism alone, the plan asks for {unsupported or 'lora'}")
    attention = "eager" if plan.get("attention") == "eager" else "sdpa"
    config = LlamaConfig(
        **sizes, max_position_embeddings=sequence_length, use_cache=False, attn_implementation=attention
    )
    model = LlamaForCausalLM(config)
    model.train()
    checkpoint(model, plan["stages"][0]["recompute"])
    return model


def checkpoint(model: Any, counts: dict[str, int]) -> None:
    """Recompute the first `full` layers in the backward pass, as the plan lays them out."""
    if counts.get("selective") or counts.get("interval", 1) != 1:
        raise SystemExit(f"this script recomputes whole layers one by one, the plan asks for {counts}")
    if not counts.get("full"):
        return
    if hasattr(model, "activation_checkpointing_enable"):
        model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    else:  # transformers before 5.20
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    for layer in model.model.layers[counts["full"] :]:
        layer.gradient_checkpointing = False


def synthetic(micro_batch_size: int, sequence_length: int, device: Any) -> Iterator[Any]:
    """Endless batches of token ids, different on every rank."""
    import torch

    generator = torch.Generator().manual_seed(100 + torch.distributed.get_rank())
    while True:
        tokens = [torch.randint(0, ALPHABET, (micro_batch_size,), generator=generator)]
        for _ in range(sequence_length - 1):
            # A linear congruence of full period (Hull and Dobell): every sequence runs through the whole alphabet.
            tokens.append((5 * tokens[-1] + 3) % ALPHABET)
        yield torch.stack(tokens, dim=1).to(device)


def train_step(engine: Any, batches: Iterator[Any], accumulation: int) -> Any:
    """One optimizer step of `accumulation` micro-batches; its mean loss."""
    total = 0.0
    for _ in range(accumulation):
        tokens = next(batches)
        loss = engine(input_ids=tokens, labels=tokens).loss
        engine.backward(loss)
        engine.step()
        total = total + loss.detach().float()
    return total / accumulation


def average(loss: Any) -> float:
    """The loss over all ranks."""
    import torch

    torch.distributed.all_reduce(loss)
    return float(loss) / int(torch.distributed.get_world_size())


if __name__ == "__main__":
    main()
