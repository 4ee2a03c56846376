"""API keys as text: `mwk_ID_SECRET`. The prefix lets scanners find leaked ones; the id finds the row without a scan."""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field
from typing import Final

PREFIX: Final = "mwk"
ID_BYTES: Final = 6
SECRET_BYTES: Final = 32
"""256 random bits: no password, so that a plain hash keeps it (nothing could be guessed from it)."""
_FORM: Final = re.compile(rf"{PREFIX}_([0-9a-f]{{{2 * ID_BYTES}}})_[0-9a-f]{{{2 * SECRET_BYTES}}}")


@dataclass(frozen=True, slots=True)
class Token:
    """A key as its holder presents it. Its text is in no representation of it."""

    id: str
    text: str = field(repr=False)

    @property
    def sha256(self) -> str:
        """What is stored of it."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def is_of(self, sha256: str) -> bool:
        """Whether it is the one that was stored, in a time that tells nothing."""
        return hmac.compare_digest(self.sha256, sha256)


def make() -> Token:
    """A new one."""
    key_id = secrets.token_hex(ID_BYTES)
    return Token(key_id, f"{PREFIX}_{key_id}_{secrets.token_hex(SECRET_BYTES)}")


def read(text: str) -> Token | None:
    """The token, if `text` has the form of one."""
    found = _FORM.fullmatch(text)
    return None if found is None else Token(found.group(1), text)
