"""Calibration from measurements: the constants that rows identify, and how far predictions with them were off."""

from planner.fitting.fit import fit
from planner.fitting.site import update

__all__ = ["fit", "update"]
