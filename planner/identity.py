"""Hashes: what a plan was made from, in canonical JSON (RFC 8785) under SHA-256."""

import hashlib
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import rfc8785

from cost_models import catalog
from cost_models.calibration import Calibration
from cost_models.errors import SpecError


def canonical_json(value: Any) -> bytes:
    """RFC 8785: keys sorted, shortest numbers, no white space.

    Raises:
        SpecError: a number that JSON cannot carry without loss.
    """
    try:
        return rfc8785.dumps(value)
    except rfc8785.CanonicalizationError as error:
        raise SpecError(f"cannot be hashed: {error}; integers go to 2^53 - 1 and numbers are finite") from error


def digest(value: Any) -> str:
    """SHA-256 of the canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def _walk(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.is_dir():
            found += _walk(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith((".yaml", ".yml", ".json")):
            found.append((prefix + entry.name, entry.read_bytes()))
    return found


def _files_hash(package: str, *folders: str) -> str:
    total = hashlib.sha256()
    for folder in folders:
        for name, content in _walk(files(package).joinpath(folder), f"{folder}/"):
            total.update(f"{name} {len(content)}\n".encode())
            total.update(content)
    return total.hexdigest()


def catalogue_hash() -> str:
    """Of the shipped devices, links, models and framework facts."""
    return catalog.catalogue_hash()


@cache
def legality_hash() -> str:
    """Of the rules of all back ends."""
    return _files_hash("solver", "legality")


def calibration_hash(calibration: Calibration) -> str:
    """Of every factor and its source."""
    return digest(calibration.model_dump(mode="json"))
