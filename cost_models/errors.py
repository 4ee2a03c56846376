"""Every error Meshwright raises on purpose descends from `MeshwrightError`.

    MeshwrightError
    ├─ SpecError                the input cannot be read or breaks a rule; the message names both sides
    │  ├─ MissingKey            a number that cannot be guessed is absent; the message names its key
    │  ├─ UnknownName           no device, model, link, back end ... of that name; close names are offered
    │  └─ BrokenRule            two stated numbers contradict each other
    └─ MissingCalibration       a term has no measured, cited or fitted constant; raised, never guessed

Floors above add their own leaves in their own module. Infeasible is a result, not an error.
"""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Self

_FEW = 12
"""Most names that one line lists."""
Place = tuple[tuple[str, ...], str]
"""The keys of the input that lead to something wrong, and what is wrong there."""


class MeshwrightError(Exception):
    """Base of all deliberate errors. `str(error)` is one line fit for a user."""


class SpecError(MeshwrightError):
    """The input cannot be read, or breaks a rule."""

    places: tuple[Place, ...] = ()
    """Every complaint with its place, where places are known."""

    def at(self, *keys: str) -> Self:
        """The same about what stands under these keys of the input."""
        self.places = tuple(((*keys, *path), text) for path, text in self.places or (((), str(self)),))
        return self


@contextmanager
def within(*keys: str) -> Iterator[None]:
    """What is wrong is wrong under these keys of the input."""
    try:
        yield
    except SpecError as error:
        error.at(*keys)
        raise


@contextmanager
def without(*keys: str) -> Iterator[None]:
    """The input is only what stands under these keys elsewhere: places are told from there."""
    try:
        yield
    except SpecError as error:
        error.places = tuple(
            (path[len(keys) :] if path[: len(keys)] == keys else path, text) for path, text in error.places
        )
        raise


def all_of(errors: list[SpecError]) -> SpecError:
    """Several errors as one; one alone as it is."""
    if len(errors) == 1:
        return errors[0]
    joined = SpecError("; ".join(str(error) for error in errors[:_FEW]))
    joined.places = tuple(place for error in errors for place in error.places or (((), str(error)),))
    return joined


class MissingKey(SpecError):
    """A needed number is absent."""

    def __init__(self, key: str, where: str, why: str = "") -> None:
        """Name the `key`, the place it is missing from, and optionally what needs it."""
        self.key, self.where = key, where
        super().__init__(f"{where}: {key} is missing" + (f" ({why})" if why else ""))


class UnknownName(SpecError):
    """A name that no catalogue knows."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        """Offer the closest of the `known` names, or all of them where none is close and they are few."""
        self.name = name
        names = [k.lower() for k in known]
        near = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.4)
        offer = f"; did you mean {', '.join(near)}?" if near else ""
        if not near and 0 < len(names) <= _FEW:
            offer = f"; known: {', '.join(names)}"
        super().__init__(f"unknown {kind} {name!r}{offer}")


class BrokenRule(SpecError):
    """Two stated numbers contradict each other; the message names both and the nearest legal value."""


class MissingCalibration(MeshwrightError):
    """A cost term has no data."""
