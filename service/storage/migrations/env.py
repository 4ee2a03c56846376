"""How Alembic reaches the database: over the connection that `service.storage.upgrade` hands it."""

from alembic import context
from sqlalchemy.engine import Connection

from service.storage.tables import Base

connection: Connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=Base.metadata,
    render_as_batch=True,  # SQLite alters a table by making it anew
    compare_type=True,
    transaction_per_migration=False,
)
context.run_migrations()
