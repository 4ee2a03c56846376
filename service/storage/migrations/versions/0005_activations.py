"""Which version of the constants is in force, and what stands behind those that were made from measurements."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from service.storage import guards

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    """A table of its own; what projects have added so far is in force in its order, as it was."""
    op.add_column("calibrations", sa.Column("evidence", JSON, nullable=True))
    op.create_table(
        "activations",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=36), nullable=False),
        sa.Column("calibration_id", sa.String(length=36), nullable=True),
        sa.Column("author", sa.String(length=200), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("held", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["calibration_id"], ["calibrations.id"], name="fk_activations_calibration_id_calibrations"
        ),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_activations_project_id_projects"),
        sa.PrimaryKeyConstraint("id", name="pk_activations"),
    )
    op.create_index("ix_activations_project_id_id", "activations", ["project_id", "id"])
    op.execute(
        "INSERT INTO activations (id, project_id, calibration_id, author, reason, held, created_at) "
        "SELECT id, project_id, id, author, reason, true, created_at FROM calibrations WHERE project_id IS NOT NULL"
    )
    for statement in guards.triggers(op.get_bind().dialect.name, guards.ACTIVATIONS):
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    """Forget them: the version that was added last is in force again."""
    for statement in guards.trigger_removals(op.get_bind().dialect.name, guards.ACTIVATIONS):
        op.get_bind().exec_driver_sql(statement)
    op.drop_table("activations")
    op.drop_column("calibrations", "evidence")
