"""Read a request: YAML for people, JSON on the wire, from text that may be hostile."""

import json
import re
from collections import Counter
from collections.abc import Hashable
from pathlib import Path
from typing import Any, Final

import yaml

from planner.errors import RequestUnreadable

MAX_BYTES: Final = 2**20
"""Largest request text. A config.json of any published model is below 100 kB."""
MAX_DEPTH: Final = 24
"""Deepest nesting of mappings and lists; keeps both parsers far from the interpreter's recursion limit."""
MAX_KEYS: Final = 4096
"""Most keys of one mapping. A config.json with a label for each class of a data set stays below it."""
MOST_DIGITS: Final = 400
"""Most digits of an integer: more than the largest double has."""
_LONGEST_SHOWN: Final = 80
_STRING_OR_BRACKET: Final = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
_STRING_OR_CONSTANT: Final = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|-?Infinity|NaN', re.DOTALL)


def shortened(text: str) -> str:
    """A user's text, cut to what fits an error message."""
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


class _Refused(Exception):
    """What the loader does not accept, with its line."""


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader that refuses aliases (they can expand a small text without limit) and repeated keys."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.events.AliasEvent):
            line = self.peek_event().start_mark.line + 1  # type: ignore[no-untyped-call]
            raise _Refused(f"line {line}: YAML aliases are not accepted; write it out")
        if len(self._path) >= MAX_DEPTH:
            raise _Refused(f"the request nests deeper than {MAX_DEPTH} levels")
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
        if len(node.value) > MAX_KEYS:
            line = node.start_mark.line + 1
            raise _Refused(f"line {line}: a mapping has {len(node.value)} keys, the limit is {MAX_KEYS}")
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            line = key_node.start_mark.line + 1
            if not isinstance(key, str):
                raise _Refused(f"line {line}: key {shortened(repr(key))} is not a name")
            if key in seen:
                raise _Refused(f"line {line}: {shortened(key)} is given twice; a key may stand once")
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


# A date is never meant in a request.
_StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _yaml_integer(loader: _StrictLoader, node: yaml.ScalarNode) -> int:
    if len(node.value) > MOST_DIGITS:
        line = node.start_mark.line + 1
        raise _Refused(f"line {line}: an integer has {len(node.value)} digits, the limit is {MOST_DIGITS}")
    return loader.construct_yaml_int(node)


_StrictLoader.add_constructor("tag:yaml.org,2002:int", _yaml_integer)


class _RepeatedKey(ValueError):
    """The key."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MAX_KEYS:
        raise _Refused(f"a mapping has {len(pairs)} keys, the limit is {MAX_KEYS}")
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise _RepeatedKey(next(key for key, count in counts.items() if count > 1))
    return mapping


def _integer(text: str) -> int:
    """Python refuses to read integers of thousands of digits, in words about itself."""
    if len(text) > MOST_DIGITS:
        raise _Refused(f"an integer has {len(text)} digits, the limit is {MOST_DIGITS}")
    return int(text)


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a number that JSON allows; write a finite one")


def _check_depth(text: str, what: str) -> None:
    """Before parsing, which recurses: count the brackets outside of strings."""
    depth = 0
    for found in _STRING_OR_BRACKET.finditer(text):
        first = found.group()[0]
        depth += (first in "[{") - (first in "]}")
        if depth > MAX_DEPTH:
            line = text.count("\n", 0, found.start()) + 1
            raise RequestUnreadable(f"{what}: line {line}: the request nests deeper than {MAX_DEPTH} levels")


def _place(text: str, error: ValueError) -> str:
    """`line N: ` of a repeated key or a number that JSON lacks, where that place is the only one it can be."""
    if isinstance(error, _RepeatedKey):
        at = [found.start() for found in re.finditer(re.escape(json.dumps(str(error))) + r"\s*:", text)]
        start = at[1] if len(at) == 2 else None
    else:
        constant = str(error).partition(" ")[0]
        found = (f.start() for f in _STRING_OR_CONSTANT.finditer(text) if f.group() == constant)
        start = next(found, None)
    return "" if start is None else f"line {text.count(chr(10), 0, start) + 1}: "


def _checked(text: str | bytes, what: str, limit: int) -> str:
    size = len(text) if isinstance(text, bytes) else len(text.encode("utf-8", "surrogatepass"))
    if size > limit:
        raise RequestUnreadable(f"{what} holds {size} bytes, the limit is {limit}")
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise RequestUnreadable(f"{what} is not UTF-8 text (byte {error.start})") from error
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
    text = _checked(text, what, limit)
    _check_depth(text, what)
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=_integer)
    except json.JSONDecodeError as error:
        raise RequestUnreadable(
            f"{what} is not JSON: {error.msg} at line {error.lineno} column {error.colno}"
        ) from error
    except _RepeatedKey as error:
        raise RequestUnreadable(
            f"{what}: {_place(text, error)}{shortened(str(error))} is given twice; a key may stand once"
        ) from error
    except _Refused as error:
        raise RequestUnreadable(f"{what}: {error}") from error
    except ValueError as error:
        raise RequestUnreadable(f"{what} is not JSON: {_place(text, error)}{error}") from error
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
    except _Refused as error:
        raise RequestUnreadable(f"{what}: {error}") from error
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
