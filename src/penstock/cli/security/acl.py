"""`penstock security acl …`: the access lists of a cluster (KIP-11, KIP-290)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from penstock.cli.options import Connection, confirm, connection_options, query_options
from penstock.cli.render import print_rows
from penstock.cli.style import StyledGroup

if TYPE_CHECKING:
    from penstock.cli.security.acl_entries import Resources
    from penstock.model.access import PatternType, Permission
    from penstock.wire.messages.create_acls import AclCreation

SHOWN_MAX = 20
COLUMNS = ("principal", "permission", "operation", "resource_type", "resource", "pattern", "host")


@click.group(cls=StyledGroup)
def command() -> None:
    """Manage access lists. What no entry allows is refused, and what one denies is refused even if others allow it."""


def resource_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name resources; the command receives them as `resources`."""

    @click.option("--topic", "topics", multiple=True, metavar="NAME", help="A topic; * for all. May be repeated.")
    @click.option("--group", "groups", multiple=True, metavar="NAME", help="A consumer group; * for all.")
    @click.option("--transactional-id", "transactional_ids", multiple=True, metavar="ID", help="A transactional id.")
    @click.option("--delegation-token", "tokens", multiple=True, metavar="ID", help="A delegation token.")
    @click.option(
        "--user-principal", "users", multiple=True, metavar="User:NAME", help="A user whose tokens are meant."
    )
    @click.option("--cluster", is_flag=True, help="The cluster itself.")
    @click.option("--prefixed", is_flag=True, help="Names are beginnings: --topic orders. means orders.eu too.")
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        from penstock.cli.security.acl_entries import Resources

        names = ("topics", "groups", "transactional_ids", "tokens", "users", "cluster", "prefixed")
        function(*args, resources=Resources(**{name: kwargs.pop(name) for name in names}), **kwargs)

    return wrapped


class People(NamedTuple):
    """Who is meant, from where, and to do what; and whether in entries that allow, or in those that refuse."""

    principals: tuple[str, ...]
    allow: bool
    deny: bool
    operations: tuple[str, ...]
    hosts: tuple[str, ...]

    def permission(self, otherwise: Permission) -> Permission:
        """What entries say; `otherwise` if that was not given."""
        from penstock.model.access import Permission

        if self.allow and self.deny:
            raise click.UsageError("Use either --allow or --deny.")
        if self.deny:
            return Permission.DENY
        return Permission.ALLOW if self.allow else otherwise


def people_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say who, from where, and what; the command receives them as `people`."""

    @click.option("--principal", "principals", multiple=True, metavar="User:NAME", help="Who; User:* for all users.")
    @click.option("--allow", is_flag=True, help="Entries that allow.")
    @click.option("--deny", is_flag=True, help="Entries that refuse.")
    @click.option("--operation", "operations", multiple=True, metavar="NAME,…", help="READ, WRITE, DESCRIBE, ALL, …")
    @click.option("--host", "hosts", multiple=True, metavar="ADDRESS", help="From this address only.")
    @functools.wraps(function)
    def wrapped(*args: object, **kwargs: Any) -> None:
        function(*args, people=People(**{name: kwargs.pop(name) for name in People._fields}), **kwargs)

    return wrapped


@command.command()
@people_options
@resource_options
@click.option("--producer", is_flag=True, help="All that a producer needs on the topics and transactional ids.")
@click.option("--consumer", is_flag=True, help="All that a consumer needs on the topics and groups.")
@click.option("--idempotent", is_flag=True, help="With --producer: for clients and brokers older than Kafka 2.8.")
@connection_options
def add(
    people: People,
    resources: Resources,
    producer: bool,
    consumer: bool,
    idempotent: bool,
    connection: Connection,
) -> None:
    """Add entries: who may (--allow, the default) or must not (--deny) do what, on which resources."""
    from penstock.cli.security.acl_entries import (
        Grant,
        check_principals,
        consumer_entries,
        entries_for,
        parse_operations,
        producer_entries,
        sentence,
    )
    from penstock.cli.wire_client import ask_cluster, check_error
    from penstock.model.access import WILDCARD, Permission
    from penstock.wire.messages.create_acls import CreateAclsRequest

    if not people.principals:
        raise click.UsageError("Say who is meant: --principal User:NAME.")
    if bool(people.operations) == (producer or consumer):
        raise click.UsageError("Say what is meant: --operation NAME,…, or else --producer or --consumer.")
    if (producer or consumer) and people.deny:
        raise click.UsageError("--producer and --consumer allow what these need; use --operation with --deny.")
    if idempotent and not producer:
        raise click.UsageError("--idempotent goes with --producer.")
    check_principals(people.principals)
    grant = Grant(people.principals, people.hosts or (WILDCARD,), people.permission(Permission.ALLOW))
    wanted: list[AclCreation] = []
    if producer:
        wanted += producer_entries(grant, resources, idempotent=idempotent)
    if consumer:
        wanted += consumer_entries(grant, resources)
    if people.operations:
        wanted += entries_for(grant, resources, parse_operations(people.operations))
    if not wanted:
        raise click.UsageError("Say on what: --topic, --group, --transactional-id or --cluster.")
    wanted = list(dict.fromkeys(wanted))
    response = ask_cluster(connection, CreateAclsRequest(wanted))
    for entry, result in zip(wanted, response.results, strict=True):
        check_error(result.error_code, result.error_message, f"cannot add: {sentence(entry)}")
    for entry in wanted:
        click.echo(sentence(entry))


@command.command("list")
@people_options
@resource_options
@query_options
def list_entries(
    people: People,
    resources: Resources,
    connection: Connection,
    as_json: bool,
) -> None:
    """List entries. With a resource's name: all that decide about it, those of prefixes and of * among them."""
    from penstock.cli.security.acl_entries import described
    from penstock.model.access import PatternType

    pattern = None if resources.prefixed else PatternType.MATCH
    rows = [described(one) for one in _find(connection, resources, pattern, people)]
    print_rows(rows, COLUMNS, as_json)


@command.command()
@people_options
@resource_options
@click.option("--all", "everything", is_flag=True, help="Every entry of the cluster.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connection_options
def delete(
    people: People,
    resources: Resources,
    everything: bool,
    yes: bool,
    connection: Connection,
) -> None:
    """Delete the entries that fit all that is given. Names are literal, or prefixes with --prefixed."""
    from penstock.cli.security.acl_entries import sentence
    from penstock.cli.wire_client import ask_cluster, check_error
    from penstock.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest

    given = any(people) or list(resources)
    if bool(given) == everything:
        raise click.UsageError("Say which entries are meant (--principal, --topic, …), or --all.")
    found = _find(connection, resources, None, people)
    if not found:
        click.echo("no entry fits")
        return
    for entry in found[:SHOWN_MAX]:
        click.echo(sentence(entry))
    if len(found) > SHOWN_MAX:
        click.echo(f"and {len(found) - SHOWN_MAX} more")
    confirm("Delete this entry?" if len(found) == 1 else f"Delete these {len(found)} entries?", yes)
    response = ask_cluster(connection, DeleteAclsRequest([DeleteAclsFilter(*entry) for entry in found]))
    for entry, result in zip(found, response.filter_results, strict=True):
        check_error(result.error_code, result.error_message, f"cannot delete: {sentence(entry)}")
    click.echo(f"deleted {len(found)}")


def _find(
    connection: Connection, resources: Resources, pattern: PatternType | None, people: People
) -> list[AclCreation]:
    """The entries that fit, each once, in an order that stays."""
    from penstock.cli.security.acl_entries import check_principals, filters_for, parse_operations, rows_of
    from penstock.cli.wire_client import check_error, command_client
    from penstock.model.access import Permission

    principals, _, _, operations, hosts = people
    check_principals(principals)
    permission = people.permission(Permission.ANY)
    found: dict[AclCreation, None] = {}
    client = command_client(connection)
    for wanted in filters_for(resources, pattern, principals, hosts, parse_operations(operations), permission):
        response = client.ask(wanted)
        check_error(response.error_code, response.error_message, "access lists cannot be listed")
        found.update(dict.fromkeys(rows_of(response)))
    return sorted(found)
