"""Triggers that keep history as it was. A migration that rebuilds one of these tables sets them up again."""

from collections.abc import Iterator, Mapping
from typing import Final

REFUSAL: Final = "is refused: its rows are kept as they were"
IMMUTABLE: Final = {
    "plans": ("UPDATE",),
    "calibrations": ("UPDATE", "DELETE"),
    "measurements": ("UPDATE", "DELETE"),
    "job_versions": ("UPDATE", "DELETE"),
}
"""Table -> what is refused. Plans may be deleted, by `meshwright db prune` alone."""
AUDIT: Final = {"audit": ("UPDATE",)}
"""The same for what migration 0002 added; old entries may be pruned."""
ACTIVATIONS: Final = {"activations": ("UPDATE", "DELETE")}
"""The same for what migration 0005 added."""

KEPT: Final = (*IMMUTABLE, *AUDIT, *ACTIVATIONS)
"""Tables that are never emptied as a whole (migration 0008)."""


def trigger_name(table: str, verb: str) -> str:
    """Of the trigger that refuses `verb` on `table`."""
    return f"{table}_refuse_{verb.lower()}"


def statements(dialect: str) -> Iterator[str]:
    """What sets the triggers of the foundation up."""
    if dialect == "postgresql":
        yield (
            "CREATE FUNCTION meshwright_refuse() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION '% of % {REFUSAL}', TG_OP, TG_TABLE_NAME; END $$"
        )
    yield from triggers(dialect, IMMUTABLE)


def triggers(dialect: str, tables: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """What makes `tables` refuse."""
    for table, verbs in tables.items():
        for verb in verbs:
            head = f"CREATE TRIGGER {trigger_name(table, verb)} BEFORE {verb} ON {table}"
            if dialect == "postgresql":
                yield f"{head} FOR EACH ROW EXECUTE FUNCTION meshwright_refuse()"
            else:
                refusal = f"{verb} of {table} {REFUSAL}"
                yield f"{head} BEGIN SELECT RAISE(ABORT, '{refusal}'); END"


def removals(dialect: str) -> Iterator[str]:
    """What takes them down."""
    yield from trigger_removals(dialect, IMMUTABLE)
    if dialect == "postgresql":
        yield "DROP FUNCTION meshwright_refuse()"


def trigger_removals(dialect: str, tables: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """What lets `tables` be changed."""
    for table, verbs in tables.items():
        for verb in verbs:
            on = f" ON {table}" if dialect == "postgresql" else ""
            yield f"DROP TRIGGER {trigger_name(table, verb)}{on}"


def truncations(dialect: str) -> Iterator[str]:
    """What makes the tables that are kept refuse TRUNCATE, which SQLite does not have."""
    for table in KEPT if dialect == "postgresql" else ():
        yield (
            f"CREATE TRIGGER {trigger_name(table, 'TRUNCATE')} BEFORE TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION meshwright_refuse()"
        )


def truncation_removals(dialect: str) -> Iterator[str]:
    """What takes them down."""
    for table in KEPT if dialect == "postgresql" else ():
        yield f"DROP TRIGGER {trigger_name(table, 'TRUNCATE')} ON {table}"
