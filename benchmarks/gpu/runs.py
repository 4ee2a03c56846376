"""The training runs: which, in which order, and how one is measured."""

import gc
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

WARMUP_STEPS, TIMED_STEPS = 3, 5
LORA_RANK = 16


@dataclass(frozen=True, slots=True)
class Shape:
    """A Llama-like model."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int


SHAPES: Final = {
    "llama-0.1b": Shape(768, 12, 12, 12, 2048, 32000),
    "llama-0.4b": Shape(1024, 24, 16, 16, 2816, 32000),
    "llama-1b": Shape(2048, 16, 32, 8, 8192, 128256),
    "llama-3b": Shape(3072, 28, 24, 8, 8192, 128256),
    "llama-8b": Shape(4096, 32, 32, 8, 14336, 128256),
}
TINY_SHAPES: Final = {"llama-tiny": Shape(64, 2, 4, 2, 128, 256)}


@dataclass(frozen=True, slots=True)
class Run:
    """One training run."""

    model: str
    micro_batch: int
    sequence: int
    precision: str = "bf16"
    """bf16: autocast over fp32 weights; bf16-pure: all states in bf16; fp32."""
    recompute: str = "none"
    optimizer: str = "adamw"
    method: str = "full"
    attention: str = "sdpa"
    accumulation: int = 1

    @property
    def name(self) -> str:
        """Unique, and stable between releases of this script."""
        parts = (self.model, f"{self.micro_batch}x{self.sequence}x{self.accumulation}", self.precision)
        return "-".join((*parts, self.recompute, self.optimizer, self.method, self.attention))


def planned(*, tiny: bool) -> Iterator[Run]:
    """Most telling first: a script that is stopped early has seen every size, then every switch."""
    if tiny:
        for precision in ("fp32", "bf16", "bf16-pure"):
            yield Run("llama-tiny", 2, 32, precision)
        yield Run("llama-tiny", 2, 32, recompute="full", accumulation=2)
        yield Run("llama-tiny", 2, 32, method="lora", precision="bf16-pure")
        yield Run("llama-tiny", 1, 32, optimizer="sgd", attention="eager")
        return
    for model, batch in (("llama-0.1b", 8), ("llama-1b", 2), ("llama-3b", 1), ("llama-0.4b", 4)):
        yield Run(model, batch, 2048)
    yield Run("llama-8b", 1, 2048, "bf16-pure", "full", "sgd")
    yield Run("llama-8b", 1, 2048, "bf16-pure", method="lora")
    for model in ("llama-0.1b", "llama-0.4b", "llama-1b"):
        for batch, sequence in ((1, 1024), (4, 1024), (1, 4096), (4, 4096), (16, 1024), (1, 16384)):
            yield Run(model, batch, sequence)
    for model in ("llama-0.4b", "llama-1b", "llama-3b"):
        yield Run(model, 4, 2048, recompute="full")
        yield Run(model, 4, 2048, precision="bf16-pure")
    for model in ("llama-0.4b", "llama-1b"):
        yield Run(model, 2, 2048, optimizer="sgd")
        yield Run(model, 1, 2048, precision="fp32")
        yield Run(model, 2, 2048, attention="eager")
        yield Run(model, 2, 2048, accumulation=4)
        yield Run(model, 4, 2048, precision="bf16-pure", method="lora")
    yield Run("llama-3b", 2, 4096, "bf16-pure", "full", method="lora")
    yield Run("llama-8b", 1, 4096, "bf16-pure", "full", method="lora")
    yield Run("llama-8b", 1, 2048, "bf16-pure", "full")


@dataclass(frozen=True, slots=True)
class Measured:
    """What one run gave. Peaks are None on a CPU. [bytes, s]"""

    outcome: str
    parameters: int
    step_seconds: float | None = None
    allocated: int | None = None
    reserved: int | None = None
    device: int | None = None


def measure(run: Run, shape: Shape, device: Any) -> Measured:
    """Train for a few steps on random tokens; running out of memory is a result."""
    import torch

    settle(device)
    try:
        return _train(run, shape, device)
    except torch.OutOfMemoryError:
        return Measured(outcome="oom", parameters=count(shape))
    finally:
        settle(device)


def settle(device: Any) -> None:
    """Give back what the run before held."""
    import torch

    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def count(shape: Shape) -> int:
    """Parameters of an untied Llama."""
    head = shape.hidden // shape.heads
    attention = shape.hidden * head * (2 * shape.heads + 2 * shape.kv_heads)
    layer = attention + 3 * shape.hidden * shape.ffn + 2 * shape.hidden
    return shape.layers * layer + 2 * shape.vocab * shape.hidden + shape.hidden


def _train(run: Run, shape: Shape, device: Any) -> Measured:
    import torch

    model = _model(run, shape, device)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = (
        torch.optim.AdamW(trained, lr=1e-4, fused=True)
        if run.optimizer == "adamw"
        else torch.optim.SGD(trained, lr=1e-4, momentum=0.9, foreach=False)
    )
    seconds = []
    for index in range(WARMUP_STEPS + TIMED_STEPS):
        _wait(device)
        start = time.perf_counter()
        for _ in range(run.accumulation):
            tokens = torch.randint(shape.vocab, (run.micro_batch, run.sequence), device=device)
            with torch.autocast(device.type, torch.bfloat16, enabled=run.precision == "bf16"):
                loss = model(input_ids=tokens, labels=tokens).loss
            (loss / run.accumulation).backward()
            del loss
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        _wait(device)
        if index >= WARMUP_STEPS:
            seconds.append(time.perf_counter() - start)
    cuda = device.type == "cuda"
    free, total = torch.cuda.mem_get_info(device) if cuda else (0, 0)
    return Measured(
        outcome="ok",
        parameters=count(shape),
        step_seconds=statistics.median(seconds),
        allocated=torch.cuda.max_memory_allocated(device) if cuda else None,
        reserved=torch.cuda.max_memory_reserved(device) if cuda else None,
        device=total - free if cuda else None,
    )


def _model(run: Run, shape: Shape, device: Any) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        intermediate_size=shape.ffn,
        vocab_size=shape.vocab,
        max_position_embeddings=run.sequence,
        tie_word_embeddings=False,
        use_cache=False,
        attn_implementation=run.attention,
    )
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16 if run.precision == "bf16-pure" else torch.float32)
    try:
        with torch.device(device):
            model = LlamaForCausalLM(config).train()
    finally:
        torch.set_default_dtype(before)
    if run.method == "lora":
        _adapt(model)
    if run.recompute == "full":
        enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        enable(**{
            ("activation" if enable.__name__.startswith("activation") else "gradient") + "_checkpointing_kwargs":
            {"use_reentrant": False}
        })  # fmt: skip
        if run.method == "lora":
            model.enable_input_require_grads()
    return model


def _adapt(model: Any) -> None:
    """LoRA beside every matrix of the layers, adapters in fp32 (arXiv:2106.09685), as peft lays it out."""
    import torch

    class Adapted(torch.nn.Module):  # type: ignore[misc]  # torch's types are not followed
        def __init__(self, base: Any) -> None:
            super().__init__()
            options = {"device": base.weight.device, "dtype": torch.float32}
            self.base = base
            self.down = torch.nn.Linear(base.in_features, LORA_RANK, bias=False, **options)
            self.up = torch.nn.Linear(LORA_RANK, base.out_features, bias=False, **options)
            torch.nn.init.zeros_(self.up.weight)

        def forward(self, values: Any) -> Any:
            added = self.up(self.down(values.to(self.down.weight.dtype)))
            return self.base(values) + added.to(values.dtype)

    model.requires_grad_(False)
    for layer in model.model.layers:
        for module in (layer.self_attn, layer.mlp):
            for name, child in list(module.named_children()):
                if isinstance(child, torch.nn.Linear):
                    setattr(module, name, Adapted(child))


def _wait(device: Any) -> None:
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)
