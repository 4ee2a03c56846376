"""Close the loop on this machine: train many configurations for real, correct the constants with a third of them, and
say how well the rest is predicted before and after.

    python -m benchmarks.recalibration run        # probe, then every configuration; goes on where it was stopped
    python -m benchmarks.recalibration report     # writes docs/recalibration.md

configurations   what is trained
measuring        the probe, and one run of one configuration through `meshwright-exec`
rows             what was measured, one JSON line a run
splits           seeded splits: a third updates the constants, the rest judges
page             the document
"""
