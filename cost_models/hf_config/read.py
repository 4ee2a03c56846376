"""From the keys of a config.json to a `ModelSpec`."""

from collections.abc import Mapping
from typing import Any, Final

from cost_models.errors import SpecError
from cost_models.hf_config.fields import Fields
from cost_models.hf_config.multimodal import text_fields
from cost_models.hf_config.registry import READERS, reader
from cost_models.parameters import total_parameters
from cost_models.specs.model import ModelSpec

_MOST_PARAMETERS: Final = 2**53
_CAUSAL: Final = (
    "CausalLM",
    "LMHeadModel",
    "ForConditionalGeneration",
    "Model",
    "ForSequenceClassification",
    "ForTokenClassification",
)
_NOT_CAUSAL: Final = (
    "ForMaskedLM",
    "ForPreTraining",
    "ForImageClassification",
    "MaskedImageModeling",
    "ForCTC",
    "ForObjectDetection",
)
_ENCODER_KEYS: Final = ("type_vocab_size", "sinusoidal_pos_embds", "classifier_pooling", "patch_size", "num_mel_bins")
"""Keys that only encoders have: BERT and its kin, DistilBERT, ModernBERT, vision transformers, speech."""
_NO_DECODERS: Final = frozenset(
    (
        *(
            "bert",
            "roberta",
            "xlm-roberta",
            "camembert",
            "electra",
            "albert",
            "deberta",
            "deberta-v2",
            "distilbert",
            "mpnet",
        ),
        *(
            "modernbert",
            "vit",
            "deit",
            "beit",
            "swin",
            "dinov2",
            "convnext",
            "resnet",
            "clip",
            "siglip",
            "wav2vec2",
            "hubert",
        ),
        *("t5", "mt5", "umt5", "bart", "mbart", "pegasus", "marian", "whisper"),
    )
)
"""Known to have no causal decoder of their own. An unknown name is never refused."""


def read_config(data: Mapping[str, Any], name: str | None = None, where: str = "config.json") -> ModelSpec:
    """The decoder that a config.json describes, in either spelling (transformers v4 and v5), nested or not.

    Args:
        data: the parsed file.
        name: what to call the model; by default its `_name_or_path` or its `model_type`.
        where: what error messages call the file.

    Raises:
        MissingKey: a size is absent.
        SpecError: the config is no decoder transformer, or a value breaks a rule.
    """
    if not isinstance(data, Mapping):
        raise SpecError(f"{where}: a {type(data).__name__} is not an object with Hugging Face config keys")
    if not data:
        raise SpecError(
            f"{where}: empty; hidden_size, num_hidden_layers, num_attention_heads, vocab_size, ... are needed"
        )
    whole = Fields({str(key): value for key, value in data.items()}, where)
    fields, model_type = text_fields(whole)
    _refuse_other_kinds(whole, fields, model_type)
    spec = reader(model_type)(fields)
    called = name or whole.text("_name_or_path", default="").rstrip("/").rsplit("/", 1)[-1] or model_type or "custom"
    spec = spec.model_copy(update={"name": called, "model_type": model_type or "custom"})
    if (total := total_parameters(spec)) > _MOST_PARAMETERS:
        raise SpecError(f"{where}: {called} would have {total} parameters, more than 2^53, the largest exact float")
    return spec


def _refuse_other_kinds(whole: Fields, fields: Fields, model_type: str) -> None:
    """Encoders, encoder-decoders and vision models are named for what they are.

    Raises:
        SpecError: naming the key that gives the kind away.
    """
    rule = "only decoder-only transformers are planned"
    for place in (whole, fields):
        if place.flag("is_encoder_decoder", default=False):
            raise SpecError(f"{place.where}: {place.prefix}is_encoder_decoder is true, but {rule}")
    if model_type in READERS:
        return
    if model_type in _NO_DECODERS and not fields.flag("is_decoder", default=False):
        raise SpecError(f"{fields.where}: model_type {model_type!r} names something else, but {rule}")
    architectures = [str(a) for a in whole.sequence("architectures") or ()]
    if (
        architectures
        and not any(a.endswith(_CAUSAL) for a in architectures)
        and any(a.endswith(_NOT_CAUSAL) for a in architectures)
    ):
        raise SpecError(f"{fields.where}: architectures {architectures[0]} is no causal language model, but {rule}")
    for key in _ENCODER_KEYS:
        if fields.has(key) and not fields.flag("is_decoder", default=False):
            raise SpecError(f"{fields.where}: {fields.prefix}{key} belongs to an encoder, but {rule}")
