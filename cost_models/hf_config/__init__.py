"""Hugging Face config.json -> `ModelSpec`: one module a family, a generic reader for the rest, the shipped presets."""

from cost_models.hf_config.presets import model, models
from cost_models.hf_config.read import read_config
from cost_models.hf_config.source import load_model

__all__ = ["load_model", "model", "models", "read_config"]
