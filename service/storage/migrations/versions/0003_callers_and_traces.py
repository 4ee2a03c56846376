"""From where a caller asked and how often an entry of the audit stands; the trace that a request belongs to."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Columns that earlier rows leave empty."""
    op.add_column("audit", sa.Column("address", sa.String(length=200), nullable=True))
    op.add_column("audit", sa.Column("times", sa.Integer(), nullable=False, server_default="1"))
    op.add_column("solves", sa.Column("traceparent", sa.String(length=200), nullable=True))


def downgrade() -> None:
    """Forget them. SQLite and PostgreSQL both drop a column in place, so that triggers stay."""
    op.drop_column("solves", "traceparent")
    op.drop_column("audit", "times")
    op.drop_column("audit", "address")
