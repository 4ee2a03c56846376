"""Where a config.json comes from: a mapping, a file, or a Hub repository through the optional `huggingface_hub`."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

from cost_models.errors import SpecError
from cost_models.hf_config.presets import model
from cost_models.hf_config.read import read_config
from cost_models.specs.model import ModelSpec

MOST_BYTES: Final = 2**20
"""A config.json is a few kB; the largest published ones carry label tables of some 100 kB."""
_PATIENCE_SECONDS: Final = 10
_HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_HUB_ID_LENGTH: Final = 96
"""Longest id that the Hub accepts (huggingface_hub `validate_repo_id`)."""


def load_model(source: str | Path | Mapping[str, Any]) -> ModelSpec:
    """Read a model from an inline mapping, a path (a file, or a folder that holds config.json), or a Hub id `org/name`.

    Raises:
        SpecError: one line: what could not be read, and what to do about it.
    """
    if isinstance(source, Mapping):
        return read_config(source)
    if isinstance(source, Path) or _is_path(source):
        return load_file(Path(source))
    return load_hub(source)


def _is_path(source: str) -> bool:
    try:
        found = source != "" and (Path(source).is_file() or (Path(source) / "config.json").is_file())
        return found or source.endswith(".json") or source.startswith((".", "/", "~"))
    except (OSError, ValueError):
        return False


def load_file(path: Path) -> ModelSpec:
    """Read config.json from disk.

    Raises:
        SpecError: absent, unreadable, too large, no JSON, or no decoder.
    """
    try:
        path = path.expanduser()
        file = path / "config.json" if path.is_dir() else path
        home = file.resolve().parent.name
    except (OSError, ValueError, RuntimeError) as error:
        raise _unreadable(path, error) from error
    name = home if file.name == "config.json" and home else file.stem
    return read_config(parse(_text(file), str(file)), name=name, where=str(file))


def _text(file: Path) -> str:
    """The text of a file of sane size.

    Raises:
        SpecError: absent, unreadable, too large, or not UTF-8.
    """
    try:
        size = file.stat().st_size
        text = file.read_text(encoding="utf-8") if size <= MOST_BYTES else ""
    except (OSError, ValueError) as error:
        raise _unreadable(file, error) from error
    if size > MOST_BYTES:
        raise SpecError(f"{file}: {size} bytes; a config.json has at most {MOST_BYTES}")
    return text


def _unreadable(path: Path, error: Exception) -> SpecError:
    reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
    return SpecError(f"{str(path)[:200]!r}: cannot be read ({reason})")


def parse(text: str, where: str) -> Any:
    """JSON, strictly: no NaN, no infinity.

    Raises:
        SpecError: with line and column.
    """

    def refuse(constant: str) -> NoReturn:
        raise SpecError(f"{where}: {constant} is not a number that JSON allows")

    try:
        return json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise SpecError(f"{where}: not JSON (line {error.lineno}, column {error.colno}: {error.msg})") from error
    except (RecursionError, ValueError) as error:
        raise SpecError(f"{where}: not a config.json ({type(error).__name__})") from error


def load_hub(repository: str) -> ModelSpec:
    """Read config.json, and nothing else, of a Hub repository; a cached copy serves offline.

    Raises:
        SpecError: malformed id, `huggingface_hub` not installed, offline, absent or gated.
    """
    if not _HUB_ID.fullmatch(repository) or len(repository) > _HUB_ID_LENGTH:
        raise SpecError(f"{repository[:100]!r} is neither a file nor a Hub id such as org/name")
    try:
        from huggingface_hub import hf_hub_download  # noqa: PLC0415 - optional, and slow to import
    except ImportError:
        raise SpecError(
            f"Hub model {repository!r}: huggingface_hub is not installed; pip install huggingface_hub, "
            f"or download its config.json and give the file{_or_preset(repository)}"
        ) from None
    try:
        file = Path(hf_hub_download(repository, "config.json", etag_timeout=_PATIENCE_SECONDS))
    except Exception as error:  # the client raises a dozen kinds, offline ones from its HTTP library
        raise SpecError(f"Hub model {repository!r}: {_advice(error)}{_or_preset(repository)}") from error
    return read_config(parse(_text(file), repository), name=repository.rsplit("/", 1)[-1].lower(), where=repository)


def _or_preset(repository: str) -> str:
    """The preset that ships the same facts, if there is one: offered, never taken silently."""
    try:
        return f"; the preset {model(repository).name} has the same facts"
    except SpecError:
        return ""


def _advice(error: Exception) -> str:
    """What to do about a failed download, by the kind of the client's error."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "GatedRepoError" in kinds:
        return "access is gated; accept its licence on the Hub and log in (hf auth login), or give a config.json file"
    if kinds & {"RepositoryNotFoundError", "RevisionNotFoundError", "HFValidationError"}:
        return "no such repository, or it is private; check the id, or give a config.json file"
    if "LocalEntryNotFoundError" in kinds or "OfflineModeIsEnabled" in kinds:
        return "the Hub cannot be reached and no copy is cached; go online, or give a config.json file"
    if "EntryNotFoundError" in kinds:
        return "the repository has no config.json; give one as a file"
    return f"the Hub cannot be reached ({type(error).__name__}); go online, or give a config.json file"
