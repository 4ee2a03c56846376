"""The small language of legality rules: a Python expression over columns and facts, evaluated on whole arrays.

Allowed: and, or, not, comparisons, `in [..]`, + - * // %, numbers, names and the words of a choice in quotes. Nothing
can be called, so a rule file is data.
"""

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from solver.domains import CHOICES
from solver.errors import BadLegality

_ARITHMETIC: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}
_COMPARISON: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
}


@dataclass(frozen=True)
class Expression:
    """A parsed expression."""

    text: str

    @cached_property
    def _tree(self) -> ast.expr:
        try:
            return ast.parse(self.text, mode="eval").body
        except SyntaxError as error:
            raise BadLegality(f"rule {self.text!r} is no expression: {error.msg}") from error

    @cached_property
    def names(self) -> frozenset[str]:
        """Columns and facts the expression reads."""
        return frozenset(node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name))

    def __call__(self, facts: Mapping[str, Any]) -> Any:
        """Its value: a bool or number, or an array of them where a fact is a column."""
        return _value(self._tree, facts, self.text)


def _value(node: ast.expr, facts: Mapping[str, Any], text: str) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | str() as constant):
            return constant
        case ast.Name(id=name):
            if name not in facts:
                raise BadLegality(f"rule {text!r} reads unknown {name!r}")
            return facts[name]
        case ast.BoolOp(op=op, values=operands):
            return _joined(isinstance(op, ast.Or), (_value(v, facts, text) for v in operands))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return np.logical_not(_value(operand, facts, text))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            return _ARITHMETIC[type(op)](_value(left, facts, text), _value(right, facts, text))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _comparison(left, op, right, facts, text)
        case _:
            raise BadLegality(f"rule {text!r}: {ast.unparse(node)} is not allowed")


def _joined(either: bool, operands: Iterable[Any]) -> Any:
    """`or` where `either`, else `and`; once a fact of the job settles it for all rows, no column is looked at."""
    combine, joined = np.logical_or if either else np.logical_and, not either
    for value in operands:
        if np.ndim(value):
            joined = combine(joined, value)
        elif bool(value) == either:
            return either
    return joined


def _comparison(left: ast.expr, op: ast.cmpop, right: ast.expr, facts: Mapping[str, Any], text: str) -> Any:
    choices = CHOICES.get(left.id) if isinstance(left, ast.Name) else None
    subject = _value(left, facts, text)
    if isinstance(op, ast.In | ast.NotIn):
        if not isinstance(right, ast.List):
            raise BadLegality(f"rule {text!r}: `in` needs a list in brackets")
        members = [_member(item, choices, facts, text) for item in right.elts]
        inside = _joined(True, (subject == member for member in members))
        return inside if isinstance(op, ast.In) else np.logical_not(inside)
    if type(op) not in _COMPARISON:
        raise BadLegality(f"rule {text!r}: comparison {type(op).__name__} is not allowed")
    return _COMPARISON[type(op)](subject, _member(right, choices, facts, text))


def _member(node: ast.expr, choices: tuple[str, ...] | None, facts: Mapping[str, Any], text: str) -> Any:
    """A value compared with; the words of a choice become the index its column holds."""
    value = _value(node, facts, text)
    if choices is None or not isinstance(value, str):
        return value
    if value not in choices:
        raise BadLegality(f"rule {text!r}: {value!r} is none of {', '.join(choices)}")
    return choices.index(value)
