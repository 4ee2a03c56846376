"""The last look at a log line: what has the form of a secret is struck out, whoever wrote it there."""

import re
from typing import Any, Final

STRUCK: Final = "[struck out]"
_SIGNS: Final = ("mwk_", "whsec_", "eyJ", "://", "earer ", "assword")
"""One of them is in every line that holds a secret; looking for them is much cheaper than for the patterns."""
_SECRETS: Final = re.compile(
    r"(?P<key>mwk_[0-9a-f]{12}_)[0-9a-fA-F]+"  # the part before it is no secret, and finds the key's row
    r"|(?P<hook>whsec_)[A-Za-z0-9+/=]+"
    r"|(?P<token>)eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]*)*"
    r"|(?P<bearer>[Bb]earer )[^\s\"'\\,;]+"
    r"|(?P<url>://[^\s/@:\"'\\]*:)[^\s/@\"'\\]+(?=@)"
    r"|(?P<named>[Pp]assword(?:=|\\?[\"']: \\?[\"']))[^\s\"'\\&,;)]+"
)


def strike(text: str) -> str:
    """`text` without secrets."""
    if not any(sign in text for sign in _SIGNS):
        return text
    return _SECRETS.sub(lambda found: (found[found.lastgroup] if found.lastgroup else "") + STRUCK, text)


def struck(_: Any, __: str, line: Any) -> Any:
    """A processor of structlog, after the one that renders."""
    return strike(line) if isinstance(line, str) else line
