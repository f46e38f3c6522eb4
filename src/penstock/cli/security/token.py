"""`penstock security token …`: delegation tokens (KIP-48), with which programs sign in on a user's behalf."""

from __future__ import annotations

import base64
import time
from binascii import Error as Base64Error
from typing import Any

import click

from penstock.cli.failures import CommandFailure
from penstock.cli.options import Connection, confirm, connection_options, query_options
from penstock.cli.render import print_facts, print_json, print_table
from penstock.cli.style import StyledGroup

DAY_MS = 86_400_000


@click.group(cls=StyledGroup)
def command() -> None:
    """Create, list, renew and expire delegation tokens.

    A program signs in with a token's id as its name and the secret as its password, by SCRAM (in Java with
    `tokenauth=true`), and acts as the token's owner. The brokers need delegation.token.secret.key.
    """


@command.command()
@click.option("--owner", metavar="User:NAME", help="Whose token it is. Default: the requester.")
@click.option("--renewer", "renewers", multiple=True, metavar="User:NAME", help="Who else may renew and expire it.")
@click.option("--days", type=click.FloatRange(0, min_open=True), help="Its longest life. Default: what brokers allow.")
@query_options
def create(
    owner: str | None, renewers: tuple[str, ...], days: float | None, connection: Connection, as_json: bool
) -> None:
    """Create a token and print its secret."""
    from penstock.cli.security.acl_entries import parse_principal
    from penstock.cli.wire_client import ask_cluster
    from penstock.wire.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest

    owner_kind, owner_name = parse_principal(owner) if owner is not None else (None, None)
    request = CreateDelegationTokenRequest(
        owner_kind,
        owner_name,
        [CreatableRenewers(*parse_principal(one)) for one in renewers],
        int(days * DAY_MS) if days is not None else -1,
    )
    made = ask_cluster(connection, request, "no token was created")
    facts = {
        "token_id": made.token_id,
        "secret": base64.b64encode(bytes(made.hmac)).decode(),
        "owner": f"{made.principal_type}:{made.principal_name}",
        "issued_ms": made.issue_timestamp_ms,
        "expires_ms": made.expiry_timestamp_ms,
        "ends_ms": made.max_timestamp_ms,
    }
    if as_json:
        print_json(facts)
        return
    times = {name: _time(value) for name, value in facts.items() if isinstance(value, int)}
    print_facts([(name.removesuffix("_ms").replace("_", " "), times.get(name, value)) for name, value in facts.items()])


@command.command("list")
@click.option("--owner", "owners", multiple=True, metavar="User:NAME", help="Only tokens of this user.")
@query_options
def list_tokens(owners: tuple[str, ...], connection: Connection, as_json: bool) -> None:
    """List the tokens that you may see, without their secrets."""
    rows = [
        {
            "token_id": token.token_id,
            "owner": f"{token.principal_type}:{token.principal_name}",
            "renewers": [f"{one.principal_type}:{one.principal_name}" for one in token.renewers],
            "issued_ms": token.issue_timestamp,
            "expires_ms": token.expiry_timestamp,
            "ends_ms": token.max_timestamp,
        }
        for token in _tokens(connection, owners)
    ]
    if as_json:
        print_json(rows)
        return
    print_table(
        ("token id", "owner", "renewers", "issued", "expires", "ends"),
        [
            (
                row["token_id"],
                row["owner"],
                ", ".join(row["renewers"]) or None,
                *(_time(row[name]) for name in ("issued_ms", "expires_ms", "ends_ms")),
            )
            for row in rows
        ],
    )


@command.command()
@click.argument("token", metavar="ID|SECRET")
@click.option("--days", type=click.FloatRange(0, min_open=True), help="For so long from now. Default: the brokers'.")
@connection_options
def renew(token: str, days: float | None, connection: Connection) -> None:
    """Let a token live longer, within the life that it was created with. For its owner and its renewers."""
    from penstock.cli.wire_client import ask_cluster
    from penstock.wire.messages.renew_delegation_token import RenewDelegationTokenRequest

    request = RenewDelegationTokenRequest(_secret(connection, token), int(days * DAY_MS) if days is not None else -1)
    answer = ask_cluster(connection, request, "the token was not renewed")
    click.echo(f"good until {_time(answer.expiry_timestamp_ms)}")


@command.command()
@click.argument("token", metavar="ID|SECRET")
@click.option("--days", type=click.FloatRange(0), help="In so long from now. Default: at once.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connection_options
def expire(token: str, days: float | None, yes: bool, connection: Connection) -> None:
    """End a token, at once or sooner than it would. Who is signed in with it stays so until it must sign in again."""
    from penstock.cli.wire_client import ask_cluster
    from penstock.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest

    secret = _secret(connection, token)
    confirm("End the token " + ("now?" if days is None else f"in {days:g} days?"), yes)
    request = ExpireDelegationTokenRequest(secret, int(days * DAY_MS) if days is not None else -1)
    answer = ask_cluster(connection, request, "the token was not ended")
    click.echo("ended" if days is None else f"ends {_time(answer.expiry_timestamp_ms)}")


def _tokens(connection: Connection, owners: tuple[str, ...]) -> list[Any]:
    from penstock.cli.security.acl_entries import parse_principal
    from penstock.cli.wire_client import ask_cluster
    from penstock.wire.messages.describe_delegation_token import (
        DescribeDelegationTokenOwner,
        DescribeDelegationTokenRequest,
    )

    wanted = [DescribeDelegationTokenOwner(*parse_principal(one)) for one in owners] or None
    response = ask_cluster(connection, DescribeDelegationTokenRequest(wanted), "tokens cannot be listed")
    return sorted(response.tokens, key=lambda token: (token.issue_timestamp, token.token_id))


def _secret(connection: Connection, token: str) -> bytes:
    """The secret of a token that is named by its id, or by the secret itself."""
    for known in _tokens(connection, ()):
        if known.token_id == token:
            return bytes(known.hmac)
    try:
        return base64.b64decode(token, validate=True)
    except (Base64Error, ValueError):
        raise CommandFailure(
            "there is no such token", "it is not an id that you may see, and not a secret", "`security token list`"
        ) from None


def _time(moment_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(moment_ms / 1000))
