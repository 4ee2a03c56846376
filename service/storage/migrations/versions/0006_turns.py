"""When each project had its last turn, found without looking through its past."""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """An index."""
    op.create_index("ix_solves_project_id_started_at", "solves", ["project_id", "started_at"])


def downgrade() -> None:
    """None."""
    op.drop_index("ix_solves_project_id_started_at", "solves")
