"""`meshwright db upgrade|backup|restore|prune`: the service's database, from this terminal."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cost_models.errors import SpecError

if TYPE_CHECKING:
    from service.settings import ServiceSettings
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
        if upgrade.is_ahead(before):
            text = f"{before} is ahead of this release ({upgrade.head()}): nothing to do"
            say({"from": before, "to": before}, text, as_json=as_json)
            return
        upgrade.upgrade(database)
        say({"from": before, "to": upgrade.head()}, f"{before or 'empty'} -> {upgrade.head()}", as_json=as_json)


@app.command("backup")
def backup_command(
    file: Annotated[Path, typer.Argument(help="What to write; must not be there yet. `-` is standard output.")],
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Copy the database while it is in use: SQLite to a database file, PostgreSQL to an archive for pg_restore."""
    import sys

    from service.storage.backup import backup, backup_to

    with standing(url, upgraded=False) as database:
        if str(file) == "-":
            if sys.stdout.isatty():
                raise SpecError("a backup is no text for a terminal: meshwright db backup - > FILE")
            backup_to(database, sys.stdout.buffer)
            return
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
    with standing(url) as database:
        gone = asdict(database.write(lambda work: prune(before, work)))
        say(gone, ", ".join(f"{count} {what.replace('_', ' ')}" for what, count in gone.items()), as_json=as_json)


@contextmanager
def opened(url: str | None) -> "Iterator[Database]":
    """The database of the settings, or the one at `url`; closed in the end."""
    from service.storage.database import Database

    settings = _settings(url)
    database = Database(settings.database_address, retry_seconds=settings.database_retry_seconds)
    try:
        yield database
    finally:
        database.close()


@contextmanager
def standing(url: str | None, *, upgraded: bool = True) -> "Iterator[Database]":
    """The same, where a database is there already: only `db upgrade`, `db restore` and `serve` make one.

    Raises:
        SpecError: there is none, or, if it is to be `upgraded`, it lacks migrations of this release.
    """
    from service.storage import upgrade
    from service.storage.dialects import missing_file, shown

    if (file := missing_file(_settings(url).database_address)) is not None:
        raise SpecError(
            f"there is no database at {file}: meshwright db upgrade makes one; MESHWRIGHT_DATABASE_URL, or --url, "
            "names another"
        )
    with opened(url) as database:
        found = upgrade.current(database)
        lacking = upgrade.shortfall(found)
        if found is None:
            raise SpecError(f"{shown(database.engine)} holds no tables: meshwright db upgrade makes them")
        if upgraded and lacking is not None:
            raise SpecError(f"{shown(database.engine)} is {lacking}")
        yield database


def _settings(url: str | None) -> "ServiceSettings":
    from service.settings import ServiceSettings

    return ServiceSettings.stated(**({} if url is None else {"database_url": url}))


def say(found: dict[str, object], text: str, *, as_json: bool) -> None:
    """A result for a program or for a reader."""
    import json

    typer.echo(json.dumps(found) if as_json else text)
