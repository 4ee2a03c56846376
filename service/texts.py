"""Free text that callers write: read by people, printed on terminals and in logs, so that none of it moves a cursor."""

import unicodedata
from typing import Annotated, Final

from pydantic import AfterValidator

from cost_models.specs.model import BrokenRuleValue

_CONTROL: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
_TURNING: Final = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that show what follows in another order (Unicode Standard Annex #9)."""


def control_in(text: str, but: str = "") -> str | None:
    """The first character of a text that is no part of a line, other than those of `but`."""
    for one in text:
        if one not in but and (one in _TURNING or unicodedata.category(one) in _CONTROL):
            return one
    return None


def _line(text: str) -> str:
    if (found := control_in(text)) is not None:
        raise BrokenRuleValue(f"a line of text without control characters; U+{ord(found):04X} is one")
    return text


def _lines(text: str) -> str:
    if (found := control_in(text, "\n\t")) is not None:
        raise BrokenRuleValue(f"text without control characters but line ends and tabs; U+{ord(found):04X} is one")
    return text


Line = Annotated[str, AfterValidator(_line)]
Lines = Annotated[str, AfterValidator(_lines)]
