"""Data only: devices, models, measurements and calibrations, each with its source."""
