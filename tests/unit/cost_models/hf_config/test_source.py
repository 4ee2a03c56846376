"""Where a config.json comes from: mapping, file, folder, Hub."""

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from cost_models.errors import SpecError
from cost_models.hf_config import load_model

CONFIG = {
    **{"model_type": "llama", "hidden_size": 96, "intermediate_size": 200, "num_hidden_layers": 2},
    **{"num_attention_heads": 6, "vocab_size": 331},
}


def test_mapping() -> None:
    assert load_model(CONFIG).hidden_size == 96


@pytest.mark.parametrize("as_text", [True, False])
def test_file_and_folder_are_named_after_the_folder(tmp_path: Path, as_text: bool) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    file = folder / "config.json"
    file.write_text(json.dumps(CONFIG), encoding="utf-8")
    for source in (file, folder):
        assert load_model(str(source) if as_text else source).name == "my-model"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"hidden_size": NaN}', "NaN is not a number that JSON allows"),
        (b"{", "not JSON .line 1, column 2"),
        (b"[" * 100_000, "not a config.json"),
        (b'{"hidden_size": ' + b"9" * 5000 + b"}", "not a config.json"),
        (b"\xff\xfe", "cannot be read"),
        (b"[]", "a list is not an object"),
        (b" " * 11_000_000, "11000000 bytes; a config.json has at most"),
        (b"{}", "empty; hidden_size"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(SpecError, match=message) as caught:
        load_model(file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("source", ["absent.json", "./absent", "~no-such-user/config.json", Path("absent")])
def test_absent_file(source: str | Path) -> None:
    with pytest.raises(SpecError, match="cannot be read"):
        load_model(source)


@pytest.mark.parametrize("source", ["", "a b", "x" * 200, "a/b/c", "\0"])
def test_neither_file_nor_hub_id(source: str) -> None:
    with pytest.raises(SpecError, match="is neither a file nor a Hub id"):
        load_model(source)


def hub(monkeypatch: pytest.MonkeyPatch, download: Any) -> None:
    """Stand in for the client of the Hub, which tests must not reach."""
    module = types.ModuleType("huggingface_hub")
    module.hf_hub_download = download  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)


def test_hub_fetches_config_json_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIG), encoding="utf-8")
    asked: list[tuple[str, ...]] = []

    def download(*args: str, **_: Any) -> str:
        asked.append(args)
        return str(file)

    hub(monkeypatch, download)
    assert load_model("Org/My-Model").name == "my-model"
    assert asked == [("Org/My-Model", "config.json")]


def test_hub_client_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(SpecError, match="pip install huggingface_hub"):
        load_model("org/name")


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("GatedRepoError", "access is gated"),
        ("RepositoryNotFoundError", "no such repository"),
        ("LocalEntryNotFoundError", "no copy is cached"),
        ("EntryNotFoundError", "has no config.json"),
        ("ConnectError", "cannot be reached .ConnectError"),
    ],
)
def test_hub_failures_say_what_to_do(monkeypatch: pytest.MonkeyPatch, kind: str, advice: str) -> None:
    error = type(kind, (Exception,), {})

    def download(*_: str, **__: Any) -> str:
        raise error("line one\nline two")

    hub(monkeypatch, download)
    with pytest.raises(SpecError, match=advice) as caught:
        load_model("org/name")
    assert "\n" not in str(caught.value)


def test_hub_failure_offers_the_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(*_: str, **__: Any) -> str:
        raise OSError

    hub(monkeypatch, download)
    with pytest.raises(SpecError, match="the preset llama-2-7b has the same facts"):
        load_model("meta-llama/Llama-2-7b-hf")
