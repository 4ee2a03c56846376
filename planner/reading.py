"""Read a request: YAML for people, JSON on the wire, from text that may be hostile."""

import json
from collections.abc import Hashable
from pathlib import Path
from typing import Any, Final

import yaml

from planner.errors import RequestUnreadable

MAX_BYTES: Final = 2**20
"""Largest request text. A config.json of any published model is below 100 kB."""
MAX_DEPTH: Final = 24
"""Deepest nesting; keeps both parsers far from the interpreter's recursion limit."""


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader that refuses aliases (they can expand a small text without limit) and repeated keys."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.events.AliasEvent):
            line = self.peek_event().start_mark.line + 1  # type: ignore[no-untyped-call]
            raise RequestUnreadable(f"line {line}: YAML aliases are not accepted; write it out")
        if len(self._path) >= MAX_DEPTH:
            raise RequestUnreadable(f"the request nests deeper than {MAX_DEPTH} levels")
        self._path.append(index)
        try:
            return super().compose_node(parent, index)
        finally:
            self._path.pop()

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._path: list[Any] = []

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            line = key_node.start_mark.line + 1
            if not isinstance(key, str):
                raise RequestUnreadable(f"line {line}: key {key!r} is not a name")
            if key in seen:
                raise RequestUnreadable(f"line {line}: {key} is given twice; a key may stand once")
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


# A date is never meant in a request.
_StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise RequestUnreadable(f"{twice} is given twice; a key may stand once")
    return mapping


def _no_constant(text: str) -> Any:
    raise RequestUnreadable(f"{text} is not a number that JSON allows; write a finite one")


def _check_depth(text: str) -> None:
    depth = deepest = 0
    for character in text:
        depth += (character in "[{") - (character in "]}")
        deepest = max(deepest, depth)
    if deepest > 4 * MAX_DEPTH:
        raise RequestUnreadable(f"the request nests deeper than {MAX_DEPTH} levels")


def _checked(text: str | bytes, what: str, limit: int) -> str:
    size = len(text) if isinstance(text, bytes) else len(text.encode("utf-8", "surrogatepass"))
    if size > limit:
        raise RequestUnreadable(f"{what} holds {size} bytes, the limit is {limit}")
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise RequestUnreadable(f"{what} is not UTF-8 text (byte {error.start})") from error
    _check_depth(text)
    return text


def _mapping(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        kind = "empty" if value is None else f"a {type(value).__name__}"
        raise RequestUnreadable(f"{what} is {kind}, not a mapping of keys to values")
    return value


def read_json(text: str | bytes, what: str = "the request", *, limit: int = MAX_BYTES) -> dict[str, Any]:
    """One JSON object, strictly: no repeated keys, no NaN or Infinity.

    Raises:
        RequestUnreadable: it is not that.
    """
    try:
        value = json.loads(_checked(text, what, limit), object_pairs_hook=_unique, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise RequestUnreadable(
            f"{what} is not JSON: {error.msg} at line {error.lineno} column {error.colno}"
        ) from error
    except RecursionError as error:
        raise RequestUnreadable(f"{what} nests deeper than {MAX_DEPTH} levels") from error
    except ValueError as error:
        raise RequestUnreadable(f"{what} is not JSON: {error}") from error
    return _mapping(value, what)


def read_yaml(text: str | bytes, what: str = "the request") -> dict[str, Any]:
    """One YAML mapping of plain values: no aliases, no repeated keys, no tags.

    Raises:
        RequestUnreadable: it is not that.
    """
    loader = None
    try:
        loader = _StrictLoader(_checked(text, what, MAX_BYTES))
        value = loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        line = f" at line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise RequestUnreadable(f"{what} is not YAML: {error.problem or error.context}{line}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RequestUnreadable(f"{what} is not YAML: {reason}") from error
    finally:
        if loader is not None:
            loader.dispose()
    return _mapping(value, what)


def read_file(path: Path) -> dict[str, Any]:
    """The mapping in a `.json`, `.yaml` or `.yml` file, or anything else read as YAML, of which JSON is nearly a part.

    Raises:
        RequestUnreadable: no such file, or not one mapping.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise RequestUnreadable(f"{path} holds {path.stat().st_size} bytes, the limit is {MAX_BYTES}")
        content = path.read_bytes()
    except OSError as error:
        raise RequestUnreadable(f"{path}: {(error.strerror or type(error).__name__).lower()}") from error
    return read_json(content, str(path)) if path.suffix == ".json" else read_yaml(content, str(path))
