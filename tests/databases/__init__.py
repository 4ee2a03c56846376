"""Real databases for tests: fresh SQLite files, and a PostgreSQL server of the test run's own."""
