"""One chain of migrations for both databases."""
