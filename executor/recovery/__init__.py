"""A run that ends badly is continued from its last checkpoint, under a plan that fits better, at most so many times.

ladder       from how a run ended to what is done next: pure
supervise    runs, decides, plans again, runs on; one line of a log for each step with its reason
"""
