"""Which request accepted a solve, for the log lines of its work."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A column that earlier rows leave empty."""
    op.add_column("solves", sa.Column("request_id", sa.String(200), nullable=True))


def downgrade() -> None:
    """Forget it."""
    op.drop_column("solves", "request_id")
