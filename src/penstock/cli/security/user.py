"""`penstock security user …`: those who sign in with a name and a password (SCRAM, KIP-554)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from penstock.cli.failures import CommandFailure
from penstock.cli.options import Connection, confirm, connection_options, query_options
from penstock.cli.render import print_rows
from penstock.cli.style import StyledGroup

if TYPE_CHECKING:
    from penstock.wire.messages.alter_user_scram_credentials import ScramCredentialDeletion, ScramCredentialUpsertion

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
BOTH = "both"
ITERATIONS = 8192
SALT_BYTES = 24

mechanism_option = click.option(
    "--mechanism",
    type=click.Choice([BOTH, *MECHANISMS], case_sensitive=False),
    default=BOTH,
    show_default=True,
    help="By which the user signs in.",
)


@click.group(cls=StyledGroup)
def command() -> None:
    """Add, list and delete users who sign in with a password (SCRAM)."""


@command.command()
@click.argument("name")
@mechanism_option
@click.option("--password-stdin", is_flag=True, help="Read the password from the first line of standard input.")
@click.option("--password", help="For scripts: others on this machine can see it while the command runs.")
@click.option(
    "--iterations",
    type=click.IntRange(4096, 16384),
    default=ITERATIONS,
    show_default=True,
    help="How much work a guess is.",
)
@connection_options
def add(
    name: str, mechanism: str, password_stdin: bool, password: str | None, iterations: int, connection: Connection
) -> None:
    """Add a user, or give one a new password. The password is prompted for; only what proves it reaches the brokers.

    Connections that are open stay open; connections.max.reauth.ms on the brokers limits for how long.
    """
    import secrets

    from penstock.core.security import scram
    from penstock.wire.messages.alter_user_scram_credentials import ScramCredentialUpsertion

    given = read_password(password, from_stdin=password_stdin)
    upsertions = []
    for kind in _mechanisms(mechanism):
        known = scram.MECHANISMS[kind]
        salt = secrets.token_bytes(SALT_BYTES)
        salted = scram.salted_password(known, given, salt, iterations)
        upsertions.append(ScramCredentialUpsertion(name, known.code, iterations, salt, salted))
    _alter(connection, [], upsertions, f"user {name} cannot be added")
    click.echo(f"{name} signs in by {' or '.join(_mechanisms(mechanism))}")


@command.command("list")
@query_options
def list_users(connection: Connection, as_json: bool) -> None:
    """List users and the mechanisms that they sign in by. Passwords are never returned."""
    rows = [
        {"user": user, "mechanism": mechanism, "iterations": iterations}
        for user, mechanism, iterations in sorted(_known(connection))
    ]
    print_rows(rows, ("user", "mechanism", "iterations"), as_json)


@command.command()
@click.argument("name")
@mechanism_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@connection_options
def delete(name: str, mechanism: str, yes: bool, connection: Connection) -> None:
    """Delete a user, or one of its mechanisms. Its entries in access lists stay: see `security acl delete`."""
    from penstock.core.security import scram
    from penstock.wire.messages.alter_user_scram_credentials import ScramCredentialDeletion

    present = sorted(kind for user, kind, _ in _known(connection) if user == name and kind in _mechanisms(mechanism))
    if not present:
        raise CommandFailure(
            f"there is no user {name}" + ("" if mechanism == BOTH else f" who signs in by {mechanism}"),
            "SCRAM has no such credential",
            "`penstock security user list` shows those that there are",
        )
    confirm(f"Delete {name}, who signs in by {' and '.join(present)}?", yes)
    deletions = [ScramCredentialDeletion(name, scram.MECHANISMS[kind].code) for kind in present]
    _alter(connection, deletions, [], f"user {name} cannot be deleted")
    click.echo(f"{name} cannot sign in by {' or '.join(present)} any more")


def _mechanisms(choice: str) -> tuple[str, ...]:
    return MECHANISMS if choice == BOTH else (choice.upper(),)


def read_password(given: str | None, *, from_stdin: bool) -> str:
    """The password as given, from standard input, or prompted for."""
    if given is not None and from_stdin:
        raise click.UsageError("Use either --password or --password-stdin.")
    if from_stdin:
        given = sys.stdin.readline().rstrip("\r\n")
    elif given is None:
        if not sys.stdin.isatty():
            raise CommandFailure(
                "there is no password", "there is no terminal to ask on", "add --password-stdin and pipe it in"
            )
        given = str(click.prompt("Password", hide_input=True, confirmation_prompt=True))
    if not given:
        raise CommandFailure("the password is empty", "anyone could guess it", "choose a long one")
    return given


def _known(connection: Connection) -> list[tuple[str, str, int]]:
    from penstock.cli.wire_client import ask_cluster
    from penstock.core.security import scram
    from penstock.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest

    response = ask_cluster(connection, DescribeUserScramCredentialsRequest(users=None), "users cannot be listed")
    return [
        (result.user, scram.MECHANISMS_BY_CODE[info.mechanism].name, info.iterations)
        for result in response.results
        for info in result.credential_infos
        if info.mechanism in scram.MECHANISMS_BY_CODE
    ]


def _alter(
    connection: Connection,
    deletions: list[ScramCredentialDeletion],
    upsertions: list[ScramCredentialUpsertion],
    what: str,
) -> None:
    from penstock.cli.wire_client import ask_cluster, check_error
    from penstock.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest

    for result in ask_cluster(connection, AlterUserScramCredentialsRequest(deletions, upsertions)).results:
        check_error(result.error_code, result.error_message, what)
