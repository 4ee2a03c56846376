"""Models of fake tensors: they have shapes, dtypes and storages, but no memory behind them.

A model is built on the meta device, where adapters and casts work, and its tensors are then exchanged for fake CPU
ones, whose kernels choose the same fused attention as a GPU's (the meta device's attention is spelled out).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from benchmarks.tracker.case import Case, config_json

_BLOCK = 64
"""Weights that share one scale in NF4 storage (arXiv:2305.14314, section 3)."""


def build(case: Case) -> nn.Module:
    """The case's model on the meta device, adapters and recompute switched on."""
    from transformers import AutoConfig, AutoModelForCausalLM  # noqa: PLC0415  slow to import

    keys = config_json(case)
    config = AutoConfig.for_model(keys.pop("model_type"), **keys)
    config = getattr(config, "text_config", None) or config
    for name in [n for n in vars(config) if n.endswith(("dropout", "pdrop", "dropout_prob"))]:
        setattr(config, name, 0.0)
    dtype = torch.bfloat16 if case.precision == "bf16-pure" or case.lora else torch.float32
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=case.attention)
        model.train()
        if case.four_bit:
            _quantize(model)
        if case.lora:
            model = _adapted(model, case)
        if case.recompute == "full":
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            if case.lora:
                model.enable_input_require_grads()
    return model  # type: ignore[no-any-return]


def _adapted(model: nn.Module, case: Case) -> nn.Module:
    from peft import LoraConfig, get_peft_model  # noqa: PLC0415  slow to import

    targets: Any = "all-linear" if case.lora == "all-linear" else case.lora.split("+")
    return get_peft_model(model, LoraConfig(r=case.rank, target_modules=targets, task_type="CAUSAL_LM"))  # type: ignore[arg-type]


class _Product(torch.autograd.Function):
    """Product with a weight that is expanded for it, and again in backward. As bitsandbytes' `MatMul4Bit`."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, linear: "FourBit") -> torch.Tensor:
        ctx.linear, ctx.dtype = linear, value.dtype
        return nn.functional.linear(value, linear.expanded(value.dtype), linear.bias)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return torch.matmul(gradients[0], ctx.linear.expanded(ctx.dtype)), None


class FourBit(nn.Linear):
    """A frozen linear whose weight takes the storage of 4 bits and one fp32 scale a block. It computes no product."""

    def __init__(self, linear: nn.Linear) -> None:
        """Of the same features as `linear`."""
        super().__init__(
            linear.in_features, linear.out_features, bias=linear.bias is not None, dtype=linear.weight.dtype
        )
        del self.weight
        count = linear.in_features * linear.out_features
        self.register_buffer("packed", torch.empty(count // 2, dtype=torch.uint8))
        self.register_buffer("scales", torch.empty(count // _BLOCK, dtype=torch.float32))

    @property
    def weight(self) -> torch.Tensor:  # type: ignore[override]
        """What others may ask for the dtype and the device of."""
        return self.packed  # type: ignore[return-value]

    def expanded(self, dtype: torch.dtype) -> torch.Tensor:
        """The weight in a dtype that a product takes."""
        return torch.empty(self.out_features, self.in_features, dtype=dtype, device=self.packed.device)  # type: ignore[arg-type]

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """The product."""
        return _Product.apply(value, self)  # type: ignore[no-any-return,no-untyped-call]


def _quantize(model: nn.Module) -> None:
    """Exchange all linears but the head, and cast what stays to fp32. As peft's `prepare_model_for_kbit_training`."""
    head = model.get_output_embeddings()  # type: ignore[operator]
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear and child is not head:
                setattr(module, name, FourBit(child))
    for parameter in model.parameters():
        if parameter.dtype == torch.bfloat16:
            parameter.data = parameter.data.float()


def to_fake(model: nn.Module) -> None:
    """Exchange every tensor of the model for a fake CPU one, ties kept. Call it inside a `FakeTensorMode`."""
    known: dict[int, nn.Parameter] = {}
    keep = []
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is None:
                continue
            keep.append(parameter)
            if id(parameter) not in known:
                known[id(parameter)] = nn.Parameter(_empty(parameter), requires_grad=parameter.requires_grad)
            module._parameters[name] = known[id(parameter)]
        for name, buffer in list(module._buffers.items()):
            if buffer is not None:
                module._buffers[name] = _empty(buffer)
        for name, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor) and value.device.type == "meta":
                setattr(module, name, _empty(value))


def _empty(like: torch.Tensor) -> torch.Tensor:
    return torch.empty(like.shape, dtype=like.dtype, device="cpu")


def _never(_: Any = None) -> bool:
    return False


@contextmanager
def masks_as_in_training(*, padded: bool) -> Iterator[None]:
    """Let transformers build the attention masks of a run with values.

    It takes fake tensors for a trace and then builds every mask that values might have made unnecessary.
    """
    from transformers import masking_utils  # noqa: PLC0415  slow to import

    replaced = {
        "is_tracing": _never,
        "fast_all": lambda _: not padded,
        "find_packed_sequence_indices": lambda _: None,
    }
    originals = {name: getattr(masking_utils, name) for name in replaced}
    try:
        for name, function in replaced.items():
            setattr(masking_utils, name, function)
        yield
    finally:
        for name, function in originals.items():
            setattr(masking_utils, name, function)
