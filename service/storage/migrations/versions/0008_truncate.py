"""PostgreSQL empties whole tables without a word to the triggers of their rows: those that are kept refuse that too."""

from alembic import op

from service.storage import guards

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Triggers."""
    for statement in guards.truncations(op.get_bind().dialect.name):
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    """None."""
    for statement in guards.truncation_removals(op.get_bind().dialect.name):
        op.get_bind().exec_driver_sql(statement)
