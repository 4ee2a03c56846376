"""What became of a question: which argument discards which rows, and the models of the rows nearest to the claim."""

import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from cost_models.specs.choices import Backend
from cost_models.strategy import Strategy
from solver.audit.arguments import ARGUMENTS, HOST, LAYOUTS, MEMORY, MODEL, OPEN, TIME, Asked, Discarded
from solver.audit.claim import Question
from solver.audit.grid import TICK, UNIT
from solver.audit.models import model_text, solved

LAST_ROWS: Final = 8
"""Rows nearest to the claim whose models go into a proof."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The legal rows of one back end."""

    backend: Backend
    rows: int
    sha256: str
    """Of their columns, in the order of the row key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Rows of a back end that one argument discards."""

    backend: Backend
    argument: str
    rows: int
    least_step_seconds: float | None
    """Least bound on the step of any of them, where the argument bounds it."""
    least_excess_bytes: float | None
    """Least amount by which any of them is too large, where it is memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One question of a claim, with what discards every row."""

    question: str
    regions: tuple[Region, ...]
    arguments: bytes
    """Index of ARGUMENTS for every row, back end by back end; compressed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The CP-SAT model of a row."""

    purpose: str
    """`optimum`: its minimum is the claimed goal. `plainer`, or a question's name: it has no solution."""
    backend: Backend
    row: int
    optimum: int | None
    text: bytes
    """Of the protobuf, in its text format."""


def rows_of(backend: Backend, rows: Strategy) -> Rows:
    """The legal rows of a back end, summed up."""
    total = hashlib.sha256()
    for f in fields(Strategy):
        total.update(np.ascontiguousarray(getattr(rows, f.name), dtype="<i8").tobytes())
    return Rows(backend=backend, rows=len(rows), sha256=total.hexdigest())


def settle(question: Question, found: list[Discarded]) -> Iterator[str]:
    """Give rows that paths left unsettled to CP-SAT; name those that contradict the claim."""
    for part in found:
        for asked in part.looked_at:
            if part.argument[asked.index] == OPEN and asked.layout is None:
                status, _ = solved(model_text(asked.row, asked.most_time, asked.most_peak, minimise=False))
                part.argument[asked.index] = MODEL if status == "INFEASIBLE" else OPEN
        for index in np.nonzero(part.argument == OPEN)[0].tolist():
            layout = next((a.layout for a in part.looked_at if a.index == index), None)
            row = part.rows.row(index)
            yield f"{question.name}: {part.backend} row {index} {row} is not discarded; layout {layout}"


def nearest(question: Question, found: list[Discarded], most: int = LAST_ROWS) -> Iterator[Model]:
    """Models of the rows nearest to the limits, and of all that CP-SAT settled: none has a solution."""
    looked = [
        (part.argument[a.index] != MODEL, a.floor / max(a.most_time, 1.0), part.backend, a.index, a)
        for part in found
        for a in part.looked_at
        if part.argument[a.index] in {LAYOUTS, MODEL}
    ]
    looked.sort(key=lambda entry: entry[:4])
    settled = sum(not by_path for by_path, *_ in looked)
    for *_, asked in looked[: max(most, settled)]:
        yield _model(question, asked)


def _model(question: Question, asked: Asked) -> Model:
    text = model_text(asked.row, asked.most_time, asked.most_peak, minimise=False)
    return Model(purpose=question.name, backend=asked.backend, row=asked.index, optimum=None, text=text)


def answered(question: Question, found: list[Discarded]) -> Answered:
    """A question with the argument of every row, summed up by region."""
    regions = []
    for part in found:
        virtual = np.asarray(part.rows.virtual_pipeline_stages)
        for index in np.unique(part.argument).tolist():
            at = part.argument == index
            timed, sized = index in {TIME, LAYOUTS, MODEL}, index in {MEMORY, HOST}
            regions.append(
                Region(
                    backend=part.backend,
                    argument=ARGUMENTS[index],
                    rows=int(at.sum()),
                    least_step_seconds=float((part.floor / virtual)[at].min()) * TICK if timed else None,
                    least_excess_bytes=float((part.floor - part.limit)[at].min()) * UNIT if sized else None,
                )
            )
    packed = zlib.compress(b"".join(part.argument.tobytes() for part in found), 9)
    return Answered(question=question.name, regions=tuple(regions), arguments=packed)
