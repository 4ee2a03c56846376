"""Low-rank adapters by peft beside frozen weights (arXiv:2106.09685)."""

from typing import Any, Final

from cost_models.specs.configuration import Configuration

_TARGETS: Final[dict[str, list[str]]] = {
    "all-linear": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    "attention": ["q_proj", "k_proj", "v_proj", "o_proj"],
    "qv": ["q_proj", "v_proj"],
}
"""Modules of Hugging Face's Llama by the names that a request may use."""


def adapt(model: Any, configuration: Configuration) -> None:
    """Freeze the weights in the compute dtype and put adapters beside them, in place, as the plan counts them."""
    import torch
    from peft import LoraConfig, inject_adapter_in_model

    lora = configuration.lora
    assert lora is not None
    model.to({"bf16": torch.bfloat16, "fp16": torch.float16}.get(configuration.precision, torch.float32))
    targets = lora.target_modules
    config = LoraConfig(
        r=lora.rank,
        lora_alpha=2 * lora.rank,
        lora_dropout=lora.dropout,
        target_modules=_TARGETS[targets] if isinstance(targets, str) else list(targets),
        modules_to_save=["embed_tokens", "lm_head"] if lora.train_embeddings else None,
    )
    inject_adapter_in_model(config, model)
    if lora.adapter_dtype == "fp32":
        for parameter in trained(model):
            parameter.data = parameter.data.float()


def trained(model: Any) -> list[Any]:
    """The parameters that get gradients: all of them without adapters."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]
