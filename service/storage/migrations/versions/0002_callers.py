"""Callers: API keys, and the record of what was done with them."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from service.storage import guards

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

INSTANT = sa.DateTime(timezone=True)
JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    """Make both tables; entries of the audit are not rewritten."""
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("scopes", JSON, nullable=False),
        sa.Column("requests_per_minute", sa.Integer(), nullable=True),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("expires_at", INSTANT, nullable=True),
        sa.Column("revoked_at", INSTANT, nullable=True),
        sa.Column("replaces", sa.String(length=36), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_api_keys_project_id_projects"),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
    )
    op.create_index("ix_api_keys_project_id_id", "api_keys", ["project_id", "id"])
    op.create_table(
        "audit",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=36), nullable=False),
        sa.Column("caller", sa.String(length=200), nullable=False),
        sa.Column("key_id", sa.String(length=200), nullable=True),
        sa.Column("action", sa.String(length=200), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("request_id", sa.String(length=200), nullable=True),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_audit_project_id_projects"),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
    )
    op.create_index("ix_audit_project_id_id", "audit", ["project_id", "id"])
    op.create_index("ix_audit_created_at", "audit", ["created_at"])
    for statement in guards.triggers(op.get_bind().dialect.name, guards.AUDIT):
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    """Forget every key and entry."""
    for statement in guards.trigger_removals(op.get_bind().dialect.name, guards.AUDIT):
        op.get_bind().exec_driver_sql(statement)
    op.drop_table("audit")
    op.drop_table("api_keys")
