"""The shipped presets: names, aliases, provenance, speed."""

import subprocess
import sys
import time

import pytest

from cost_models.errors import UnknownName
from cost_models.hf_config import model, models, presets
from cost_models.hf_config.presets import presets as all_presets


def test_at_least_sixty() -> None:
    assert len(models()) >= 60
    assert len(set(models())) == len(models())


@pytest.mark.parametrize("name", models())
def test_every_preset_is_a_model_of_that_name_with_a_source(name: str) -> None:
    preset = all_presets()[name]
    assert name == name.lower()
    assert preset.source
    assert preset.hub is None or preset.hub in preset.source
    assert model(name).name == name
    assert [text for text in model(name).assumptions if "planned_part" not in text] == []


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("llama2-7b", "llama-2-7b"),
        ("meta-llama/Llama-2-7b-hf", "llama-2-7b"),
        ("Llama-2-7b-hf", "llama-2-7b"),
        ("LLaMA-2-7B", "llama-2-7b"),
        (" llama3-8b ", "llama-3-8b"),
        ("meta-llama/Meta-Llama-3-8B", "llama-3-8b"),
        ("Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("qwen-2.5-7b", "qwen2.5-7b"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"),
        ("gpt-2", "gpt2"),
        ("google/gemma-2-9b-it", "gemma-2-9b"),
        ("gemma2-9b", "gemma-2-9b"),
        ("bigscience/bloom", "bloom-176b"),
        ("deepseek-r1", "deepseek-v3"),
        ("tinyllama", "tinyllama-1.1b"),
        ("microsoft/phi-1_5", "phi-1.5"),
    ],
)
def test_aliases(spelling: str, name: str) -> None:
    assert model(spelling).name == name
    assert model(spelling) is model(name)


def test_unknown_name_offers_close_ones() -> None:
    with pytest.raises(UnknownName, match=r"unknown model 'llama-2-7c'; did you mean .*llama-2-7b"):
        model("llama-2-7c")


def test_index_is_quick() -> None:
    start = time.perf_counter()
    presets.presets.__wrapped__()
    presets._index.__wrapped__()
    assert time.perf_counter() - start < 0.25, "the budget is 50 ms on a quiet machine"


def test_importing_the_reader_needs_no_framework() -> None:
    code = (
        "import sys, cost_models.hf_config as m; m.model('gpt2'); print(sorted(set(sys.modules) & set(sys.argv[1:])))"
    )
    heavy = ["torch", "transformers", "huggingface_hub", "ortools", "fastapi"]
    done = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
