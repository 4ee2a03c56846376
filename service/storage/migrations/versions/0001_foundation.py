"""Foundation: projects, calibrations, solves, plans, measurements, registrations, and the notebook of jobs."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from service.storage import guards

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

INSTANT = sa.DateTime(timezone=True)
JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
LIVE = sa.text("state IN ('queued', 'running')")


def upgrade() -> None:
    """Make every table, its triggers, and the project that exists without being made."""
    _tenants()
    _work()
    _notebook()
    _outside()
    dialect = op.get_bind().dialect.name
    for statement in guards.statements(dialect):
        op.get_bind().exec_driver_sql(statement.replace("%", "%%") if dialect == "postgresql" else statement)
    projects = sa.table("projects", sa.column("id"), sa.column("name"), sa.column("created_at", INSTANT))
    op.execute(projects.insert().values(id="default", name="default", created_at=sa.func.current_timestamp()))


def downgrade() -> None:
    """Nothing is left."""
    for statement in guards.removals(op.get_bind().dialect.name):
        op.get_bind().exec_driver_sql(statement)
    op.drop_table("tags")
    op.drop_table("measurements")
    op.drop_table("job_versions")
    op.drop_table("solves")
    op.drop_table("plans")
    op.drop_table("registrations")
    op.drop_table("jobs")
    op.drop_table("idempotency_keys")
    op.drop_table("deliveries")
    op.drop_table("calibrations")
    op.drop_table("projects")


def _tenants() -> None:
    """Who, and by which constants."""
    op.create_table(
        "projects",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_projects"),
        sa.UniqueConstraint("name", name="uq_projects_name"),
    )
    op.create_table(
        "calibrations",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=36), nullable=True),
        sa.Column("version", sa.String(length=200), nullable=False),
        sa.Column("content_sha256", sa.String(length=64), nullable=False),
        sa.Column("author", sa.String(length=200), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("data", JSON, nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_calibrations_project_id_projects"),
        sa.PrimaryKeyConstraint("id", name="pk_calibrations"),
    )
    op.create_index("ix_calibrations_project_id_id", "calibrations", ["project_id", "id"])


def _work() -> None:
    """What was asked, and what was answered."""
    op.create_table(
        "solves",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=36), nullable=False),
        sa.Column("verb", sa.String(length=16), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("options", JSON, nullable=False),
        sa.Column("content_key", sa.String(length=64), nullable=False),
        sa.Column("calibration_id", sa.String(length=36), nullable=False),
        sa.Column("model", sa.String(length=200), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("objective", sa.String(length=200), nullable=False),
        sa.Column("created_by", sa.String(length=200), nullable=True),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("started_at", INSTANT, nullable=True),
        sa.Column("ended_at", INSTANT, nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("deaths", sa.Integer(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("lease_owner", sa.String(length=200), nullable=True),
        sa.Column("lease_until", sa.Double(), nullable=True),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("progress", JSON, nullable=True),
        sa.Column("problem", JSON, nullable=True),
        sa.ForeignKeyConstraint(["calibration_id"], ["calibrations.id"], name="fk_solves_calibration_id_calibrations"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_solves_project_id_projects"),
        sa.PrimaryKeyConstraint("id", name="pk_solves"),
    )
    op.create_index("ix_solves_live", "solves", ["state", "id"], sqlite_where=LIVE, postgresql_where=LIVE)
    op.create_index("ix_solves_project_id_id", "solves", ["project_id", "id"])
    op.create_index(
        "uq_solves_live_content",
        "solves",
        ["project_id", "content_key"],
        unique=True,
        sqlite_where=LIVE,
        postgresql_where=LIVE,
    )
    op.create_table(
        "plans",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=36), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("content_key", sa.String(length=64), nullable=False),
        sa.Column("calibration_id", sa.String(length=36), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("model", sa.String(length=200), nullable=False),
        sa.Column("request_hash", sa.String(length=64), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("etag", sa.String(length=64), nullable=False),
        sa.Column("step_seconds", sa.Double(), nullable=True),
        sa.Column("conservative_bytes", sa.Double(), nullable=True),
        sa.Column("world_size", sa.Integer(), nullable=True),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.ForeignKeyConstraint(["calibration_id"], ["calibrations.id"], name="fk_plans_calibration_id_calibrations"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_plans_project_id_projects"),
        sa.PrimaryKeyConstraint("id", name="pk_plans"),
        sa.UniqueConstraint("project_id", "content_key", name="uq_plans_project_id_content_key"),
    )
    op.create_index("ix_plans_project_id_kind_id", "plans", ["project_id", "kind", "id"])


def _notebook() -> None:
    """What became of it."""
    op.create_table(
        "measurements",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=36), nullable=False),
        sa.Column("plan_id", sa.String(length=36), nullable=False),
        sa.Column("author", sa.String(length=200), nullable=False),
        sa.Column("outcome", sa.String(length=16), nullable=False),
        sa.Column("content", JSON, nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.ForeignKeyConstraint(["plan_id"], ["plans.id"], name="fk_measurements_plan_id_plans"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_measurements_project_id_projects"),
        sa.PrimaryKeyConstraint("id", name="pk_measurements"),
    )
    op.create_index("ix_measurements_plan_id_id", "measurements", ["plan_id", "id"])
    op.create_index("ix_measurements_project_id_id", "measurements", ["project_id", "id"])
    op.create_table(
        "tags",
        sa.Column("plan_id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("project_id", sa.String(length=36), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.ForeignKeyConstraint(["plan_id"], ["plans.id"], name="fk_tags_plan_id_plans"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_tags_project_id_projects"),
        sa.PrimaryKeyConstraint("plan_id", "name", name="pk_tags"),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_jobs_project_id_projects"),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
        sa.UniqueConstraint("project_id", "name", name="uq_jobs_project_id_name"),
    )
    op.create_table(
        "job_versions",
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("project_id", sa.String(length=36), nullable=False),
        sa.Column("plan_id", sa.String(length=36), nullable=False),
        sa.Column("author", sa.String(length=200), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("restores", sa.Integer(), nullable=True),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_job_versions_job_id_jobs"),
        sa.ForeignKeyConstraint(["plan_id"], ["plans.id"], name="fk_job_versions_plan_id_plans"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_job_versions_project_id_projects"),
        sa.PrimaryKeyConstraint("job_id", "number", name="pk_job_versions"),
    )
    op.create_index("ix_job_versions_plan_id", "job_versions", ["plan_id"])


def _outside() -> None:
    """What callers bring: names, keys, places to call back."""
    op.create_table(
        "registrations",
        sa.Column("project_id", sa.String(length=36), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("content", JSON, nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_registrations_project_id_projects"),
        sa.PrimaryKeyConstraint("project_id", "kind", "name", name="pk_registrations"),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("project_id", sa.String(length=36), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("request_sha256", sa.String(length=64), nullable=False),
        sa.Column("made", sa.String(length=200), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_idempotency_keys_project_id_projects"),
        sa.PrimaryKeyConstraint("project_id", "key", name="pk_idempotency_keys"),
    )
    op.create_index("ix_idempotency_keys_created_at", "idempotency_keys", ["created_at"])
    op.create_table(
        "deliveries",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=36), nullable=False),
        sa.Column("solve_id", sa.String(length=36), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_at", sa.Double(), nullable=False),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_deliveries_project_id_projects"),
        sa.PrimaryKeyConstraint("id", name="pk_deliveries"),
    )
    op.create_index("ix_deliveries_state_next_at", "deliveries", ["state", "next_at"])
    op.create_index("ix_deliveries_solve_id", "deliveries", ["solve_id"])
