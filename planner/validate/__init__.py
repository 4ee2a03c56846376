"""How far predictions are from published measurements: read, price, compare, report. Nothing is fitted here."""

from planner.validate.report import ValidationReport
from planner.validate.run import validate
from planner.validate.table import render

__all__ = ["ValidationReport", "render", "validate"]
