"""Run a plan on its nodes, measure it, and report what was measured."""
