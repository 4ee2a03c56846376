"""What the service remembers: tables, repositories, units of work and migrations, on SQLite and PostgreSQL."""
