"""`meshwright db upgrade|backup|restore|prune`: the service's database, from this terminal."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from service.storage.database import Database

app = typer.Typer(
    name="db",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="The service's database (MESHWRIGHT_DATABASE_URL).",
)
Url = Annotated[str | None, typer.Option("--url", help="sqlite:///FILE or postgresql://USER@HOST/NAME.")]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable result.")]


@app.command("upgrade")
def upgrade_command(url: Url = None, as_json: Json = False) -> None:
    """Bring the database to this release's migration; one that is there stays as it is."""
    from service.storage import upgrade

    with opened(url) as database:
        before = upgrade.current(database)
        upgrade.upgrade(database)
        say({"from": before, "to": upgrade.head()}, f"{before or 'empty'} -> {upgrade.head()}", as_json=as_json)


@app.command("backup")
def backup_command(
    file: Annotated[Path, typer.Argument(help="What to write; must not be there yet.")],
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Copy the database while it is in use: SQLite to a database file, PostgreSQL to an archive for pg_restore."""
    from service.storage.backup import backup

    with opened(url) as database:
        backup(database, file)
        say({"file": str(file), "bytes": file.stat().st_size}, str(file), as_json=as_json)


@app.command("restore")
def restore_command(
    file: Annotated[Path, typer.Argument(help="What `db backup` wrote.")], url: Url = None, as_json: Json = False
) -> None:
    """Put a backup in the place of the database; refused while a service uses it."""
    from service.storage import upgrade
    from service.storage.restore import restore

    with opened(url) as database:
        restore(database, file)
        found = upgrade.current(database)
        behind = "" if found == upgrade.head() else f"; this release needs {upgrade.head()}: meshwright db upgrade"
        say(
            {"file": str(file), "migration": found},
            f"{file} is in its place, at migration {found}{behind}",
            as_json=as_json,
        )


@app.command("prune")
def prune_command(
    older_than_days: Annotated[int, typer.Option(min=1, max=36525, help="Keep what is younger.")],
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Forget old plans that nobody measured, tagged or follows, with the requests and keys of their time."""
    from dataclasses import asdict
    from datetime import UTC, datetime, timedelta

    from service.storage.prune import prune

    before = datetime.now(UTC) - timedelta(days=older_than_days)
    with opened(url) as database:
        gone = asdict(database.write(lambda work: prune(before, work)))
        say(gone, ", ".join(f"{count} {what.replace('_', ' ')}" for what, count in gone.items()), as_json=as_json)


@contextmanager
def opened(url: str | None) -> "Iterator[Database]":
    """The database of the settings, or the one at `url`; closed in the end."""
    from service.settings import ServiceSettings
    from service.storage.database import Database

    settings = ServiceSettings.stated(**({} if url is None else {"database_url": url}))
    database = Database(settings.database_address, retry_seconds=settings.database_retry_seconds)
    try:
        yield database
    finally:
        database.close()


def say(found: dict[str, object], text: str, *, as_json: bool) -> None:
    """A result for a program or for a reader."""
    import json

    typer.echo(json.dumps(found) if as_json else text)
