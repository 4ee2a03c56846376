"""Whether the database takes a write of the size of a plan: written and taken back in one transaction."""

import secrets
from typing import Final

from service.identifiers import new_id
from service.storage.repositories import Repositories
from service.storage.tables import DEFAULT_PROJECT, Delivery

SIZE: Final = 2**16
"""A disk that is nearly full takes small rows yet. [bytes]"""


def probe(work: Repositories) -> None:
    """Leave everything as it was."""
    text = secrets.token_hex(SIZE // 2)  # what cannot be compressed to nothing
    row = Delivery(id=new_id(), project_id=DEFAULT_PROJECT, solve_id="", url=text, state="failed")
    work.deliveries.add(row)
    work.session.delete(row)
