"""What makes a measured row one that cannot be priced."""


class Unusable(Exception):
    """A row cannot be priced; `str` is the reason, worded so that rows alike share it."""
