"""Choose: the legal space, its bounds, the integer models of CP-SAT, the proof, the conflicts.

`solver.search.solve(problem)` is the front door. The solver reads integer coefficients, never a formula.
"""
