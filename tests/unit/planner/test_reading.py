"""Requests are read strictly: what is ambiguous, huge or clever is refused in one line."""

from pathlib import Path

import pytest

from planner.errors import RequestUnreadable
from planner.reading import MAX_BYTES, MAX_DEPTH, read_file, read_json, read_yaml

BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "YAML aliases are not accepted"),
        ("a: 1\na: 2\n", "line 2: a is given twice"),
        ("x:\n  a: 1\n  a: 2\n", "line 3: a is given twice"),
        ("- 1\n", "is a list, not a mapping"),
        ("", "is empty, not a mapping"),
        ("just text", "is a str, not a mapping"),
        ("a: !!python/object:os.system {}", "is not YAML: could not determine a constructor"),
        ("a: [1", "is not YAML"),
        ("a: " + "[" * 200 + "]" * 200, f"nests deeper than {MAX_DEPTH} levels"),
        ("2: 3", "key 2 is not a name"),
        ("a:\n  - " + "1" * 5000, "line 2: an integer has 5000 digits, the limit is 400"),
        ("a: 1\n---\nb: 2\n", "is not YAML"),
        ("x" * (MAX_BYTES + 1), f"the limit is {MAX_BYTES}"),
        (b"a: \xff", "is not UTF-8 text"),
    ],
)
def test_yaml_that_is_no_plain_mapping_is_refused(text: str | bytes, message: str) -> None:
    with pytest.raises(RequestUnreadable) as caught:
        read_yaml(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": NaN}', "NaN is not a number that JSON allows"),
        ('{"a": -Infinity}', "-Infinity is not a number that JSON allows"),
        ('{"a": 1, "a": 2}', "a is given twice"),
        ('{"a": {"b": 1, "b": 2}}', "b is given twice"),
        ("{", "is not JSON"),
        ("[1]", "is a list, not a mapping"),
        ("[" * 100_000, f"nests deeper than {MAX_DEPTH} levels"),
        ('{"a": ' * 24 + "[1]" + "}" * 24, f"nests deeper than {MAX_DEPTH} levels"),
        ('{"a": "NaN",\n"b": NaN}', "the request is not JSON: line 2: NaN is not a number"),
        ('{"a": 1,\n"a": 2}', "the request: line 2: a is given twice"),
        ('{"a": "' + '\\"' * 400_000, "Unterminated string"),
        ("{" + ",".join(f'"k{i}":1' for i in range(30_000)) + ',"k29999":1}', "30001 keys, the limit is 4096"),
        ("{" + ",".join(f'"k{i}":1' for i in range(4_000)) + ',"k3999":1}', "k3999 is given twice"),
        ('{"a": ' + "1" * 5000 + "}", "an integer has 5000 digits, the limit is 400"),
        ('{"a": "' + "x" * 10_000_000 + '"}', f"the limit is {MAX_BYTES}"),
    ],
)
def test_json_that_is_no_plain_object_is_refused(text: str, message: str) -> None:
    with pytest.raises(RequestUnreadable) as caught:
        read_json(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_brackets_in_strings_are_text() -> None:
    assert read_json('{"a": "' + "[" * 97 + '", "b": "\\"[{"}') == {"a": "[" * 97, "b": '"[{'}
    assert read_yaml("a: '" + "[" * 97 + "'") == {"a": "[" * 97}


def test_the_deepest_nesting_that_is_read() -> None:
    assert read_json('{"a": ' * MAX_DEPTH + "1" + "}" * MAX_DEPTH)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("r.json", '{"a": NaN}', "r.json is not JSON: line 1: NaN"),
        ("r.yaml", "a: 1\na: 2", "r.yaml: line 2: a is given twice"),
        ("r.yaml", "a: " + "[" * 30 + "]" * 30, "r.yaml: the request nests deeper"),
        ("r.json", "[" * 30 + "]" * 30, "r.json: line 1: the request nests deeper"),
    ],
)
def test_what_is_wrong_with_a_file_names_it(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(RequestUnreadable) as caught:
        read_file(tmp_path / name)
    assert message in str(caught.value)


def test_dates_stay_text_and_numbers_stay_numbers() -> None:
    assert read_yaml("a: 2026-01-01\nb: 1.5\nc: true\nd: 7\n") == {"a": "2026-01-01", "b": 1.5, "c": True, "d": 7}


def test_a_file_is_read_by_its_ending(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1}')
    (tmp_path / "a.yaml").write_text("a: 1")
    assert read_file(tmp_path / "a.json") == read_file(tmp_path / "a.yaml") == {"a": 1}


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RequestUnreadable, match=r"none\.yaml: no such file"):
        read_file(tmp_path / "none.yaml")
