"""`meshwright keys create|list|revoke|rotate`: who may ask the service, from the terminal of whoever runs it."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Final

import typer

from service.cli_db import Json, Url, say, standing

if TYPE_CHECKING:
    from datetime import datetime

    from service.security.keys import KeyInfo, NewKey
    from service.storage.database import Database

app = typer.Typer(
    name="keys",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="API keys of the service's callers.",
)
LONGEST_NAME: Final = 200
LONGEST_DAYS: Final = 36525
"""A century."""
Days = Annotated[
    float | None,
    typer.Option("--expires-in-days", min=0, max=LONGEST_DAYS, help="Good for so long; for ever when left out."),
]
KeyId = Annotated[str, typer.Argument(help="As `keys list` shows it: the part after mwk_.")]


@app.command("create")
def create_command(
    name: Annotated[str, typer.Argument(help="Who will use it, such as a scheduler's name.")],
    scopes: Annotated[
        list[str], typer.Option("--scope", help="plan, measure, calibrate, admin; several times for several.")
    ],
    project: Annotated[str, typer.Option("--project", help="The tenant whose rows it opens.")] = "default",
    new_project: Annotated[bool, typer.Option("--new-project", help="Make the project.")] = False,
    expires_in_days: Days = None,
    requests_per_minute: Annotated[
        int | None, typer.Option("--requests-per-minute", min=1, help="Instead of the installation's limit.")
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Make a key. Its text is shown this once: only a hash of it is kept."""
    import re

    from cost_models.errors import SpecError
    from service.orders import NAME_PATTERN
    from service.security import keys
    from service.security.access import SCOPES
    from service.storage.tables import now

    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown:
        raise SpecError(f"--scope {unknown[0]} is none of {', '.join(SCOPES)}")
    for what, text in (("the key's name", name), ("--project", project)):
        if not (text.isprintable() and text.strip() and len(text) <= LONGEST_NAME):
            raise SpecError(f"{what} {text[:40]!r} is not 1 to {LONGEST_NAME} printable characters")
    if new_project and re.fullmatch(NAME_PATTERN, project) is None:
        raise SpecError(f"--project {project[:40]!r} does not match {NAME_PATTERN}, the rule of names")
    ends = _after(expires_in_days)
    if ends is not None and ends <= now():
        raise SpecError(f"--expires-in-days {expires_in_days:g} makes a key that lets nobody in; give more than 0")
    wanted = [scope for scope in SCOPES if scope in scopes]
    with standing(url) as database:
        made = database.write(
            lambda work: keys.create(
                work,
                project,
                name,
                wanted,
                expires_at=ends,
                requests_per_minute=requests_per_minute,
                new_project=new_project,
            )
        )
        _show_new(made, database, as_json=as_json)


@app.command("list")
def list_command(url: Url = None, as_json: Json = False) -> None:
    """Every key, oldest first, without the secrets, which nobody has."""
    import json

    from service.security import keys

    with standing(url) as database:
        found = database.read(keys.listed)
    if as_json:
        typer.echo(json.dumps([key.model_dump(mode="json") for key in found]))
        return
    for key in found:
        typer.echo(_line(key))


@app.command("revoke")
def revoke_command(key_id: KeyId, url: Url = None, as_json: Json = False) -> None:
    """Let nobody in with a key any more: the next request with it is refused, on every replica."""
    from service.security import keys

    with standing(url) as database:
        gone = database.write(lambda work: keys.revoke(work, key_id))
    say(gone.model_dump(mode="json"), _line(gone), as_json=as_json)


@app.command("rotate")
def rotate_command(
    key_id: KeyId,
    grace_hours: Annotated[
        float, typer.Option("--grace-hours", min=0, max=LONGEST_DAYS * 24, help="The old key is good for so long yet.")
    ] = 24.0,
    expires_in_days: Days = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Make another key of the same name and scopes; the old one ends after a while."""
    from service.security import keys

    grace = timedelta(hours=grace_hours)
    with standing(url) as database:
        made = database.write(lambda work: keys.rotate(work, key_id, grace=grace, expires_at=_after(expires_in_days)))
        _show_new(made, database, as_json=as_json)


def _after(days: float | None) -> "datetime | None":
    from service.storage.tables import now

    return None if days is None else now() + timedelta(days=days)


def _show_new(made: "NewKey", database: "Database", *, as_json: bool) -> None:
    from service.storage.dialects import shown

    say(made.model_dump(mode="json"), made.token, as_json=as_json)
    if not as_json:
        typer.echo(
            f"{_line(made)}\nIt lets into the service of {shown(database.engine)}. "
            "The first line is the key; it is not shown again.",
            err=True,
        )


def _line(key: "KeyInfo") -> str:
    when = {"good": key.good_until, "revoked": key.revoked_at, "expired": key.expires_at}[key.state]
    ends = "" if when is None else f", {'good until' if key.state == 'good' else key.state} {when:%Y-%m-%d %H:%M} UTC"
    return f"{key.id}  {key.state:8} {key.project}/{key.name}: {', '.join(key.scopes)}{ends}"
