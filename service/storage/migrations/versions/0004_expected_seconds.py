"""How long an accepted request is expected to take, by what alike ones took."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A column that earlier rows leave empty."""
    op.add_column("solves", sa.Column("expected_seconds", sa.Double(), nullable=True))


def downgrade() -> None:
    """Forget it."""
    op.drop_column("solves", "expected_seconds")
