"""The bodies that docs/http.md shows are taken as they stand there."""

import json
import re
from pathlib import Path

import pytest

from tests.unit.service.client import client
from tests.unit.service.test_resources import planned

pytestmark = pytest.mark.usefixtures("databases")
TEXT = (Path(__file__).parents[3] / "docs" / "http.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"^POST (/v1/\S+) +(\{.*\})$", TEXT, re.MULTILINE)


def test_the_bodies_of_the_page_are_taken() -> None:
    assert len(SHOWN) == 6
    with client() as http:
        plan_id = planned(http).rpartition("/")[2]
        for path, text in SHOWN:
            body = json.loads(text)
            if "plan_id" in body:
                body["plan_id"] = plan_id
            made = http.post(path.replace("{id}", plan_id), json=body)
            assert made.status_code in {200, 201}, (path, made.text)
