"""The executor: launch a plan on training nodes, measure the run, report predicted against measured.

Importing this package loads neither torch nor deepspeed; both are the extra `[executor]` and are loaded where used.
"""
