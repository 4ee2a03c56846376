"""Readers of measurements: from the text of a file to jobs and configurations that can be priced."""
