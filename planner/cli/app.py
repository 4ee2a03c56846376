"""The root command: our verbs, those of installed floors, and what an error becomes."""

import os
import sys
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

import typer
from typer.core import TyperGroup

from cost_models.errors import MeshwrightError, SpecError
from planner.cli import calibrate, catalogue, certificate, estimate, export, frontier, plan, support, validate
