"""From an accepted request to its plan: the queue in the database, the pools that solve, the watch on both."""
