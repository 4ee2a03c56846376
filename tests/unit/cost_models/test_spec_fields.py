"""Numbers are written as numbers; an unknown key is answered with those that there are."""

from typing import Any, Literal

import pytest
from pydantic import PositiveInt

from cost_models.errors import SpecError
from cost_models.specs.base import Spec
from cost_models.units import ByteSize


class Inner(Spec):
    width: PositiveInt = 1
    share: float = 0.5


class Noun(Spec):
    count: PositiveInt | Inner = 1
    layers: tuple[PositiveInt, ...] = ()
    offloaded: int | Literal["all"] = 0
    rate: float = 1.0
    size: ByteSize = 0
    on: bool = False
    text: str | int = ""
    inner: tuple[Inner, ...] = ()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"count": True}, "count: true is not an integer"),
        ({"count": "8"}, "count: text '8' is not an integer; write 8"),
        ({"count": "1e2"}, "count: text '1e2' is not an integer; write 100"),
        ({"count": "yes"}, "count: text 'yes' is not an integer"),
        ({"count": "1.5"}, "count: text '1.5' is not an integer"),
        ({"count": 10**400}, "the largest integer that is read"),
        ({"count": {"width": False}}, "count.width: false is not an integer"),
        ({"layers": [2, True]}, "layers: true is not an integer"),
        ({"offloaded": "3"}, "offloaded: text '3' is not an integer; write 3"),
        ({"rate": True}, "rate: true is not a number"),
        ({"size": True}, "size: true is not an integer"),
        ({"cuont": 1}, "cuont: unknown key; did you mean count?; keys here are count, layers, offloaded"),
        ({"inner": [{"wdth": 1}]}, "inner.0.wdth: unknown key; did you mean width?; keys here are width, share"),
    ],
)
def test_what_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        Noun.read(given)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        {"count": 8},
        {"layers": [1, 2]},
        {"offloaded": "all"},
        {"rate": 2},
        {"size": "80GiB"},
        {"on": True},
        {"text": "8"},
    ],
)
def test_what_is_read(given: dict[str, Any]) -> None:
    Noun.read(given)
