"""Bounds: every function here returns numbers that no completion of a row can beat. Tests hold lb <= opt <= ub."""
