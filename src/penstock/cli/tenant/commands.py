"""`penstock tenant …`: create, list, describe, alter, delete."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import click

from penstock.cli.client import open_client
from penstock.cli.failures import CommandFailure
from penstock.cli.options import Connection, confirm, connection_options, query_options
from penstock.cli.render import plural, print_facts, print_json, print_table
from penstock.cli.security.rates import BY_KEY, show_rate
from penstock.cli.security.user import read_password
from penstock.cli.style import StyledGroup
from penstock.cli.tenant.limits import (
    CONSUME,
    DEFAULTS,
    PRODUCE,
    RATES,
    Values,
    amounts_of,
    check_limited,
    json_of,
    limit_options,
    limits_of,
    shown_limit,
    used_of,
)
from penstock.model.tenants import TENANT_LIMITS

if TYPE_CHECKING:
    from penstock.cli.wire_client import WireClient

TOPICS_NAMED_MAX = 5
PASSWORD_BYTES = 24


@click.group(cls=StyledGroup)
def command() -> None:
    """Share a cluster: a tenant has a user, its own names, which begin with its name and a dot, and limits."""


@command.command()
@click.argument("name")
@limit_options
@click.option("--password-stdin", is_flag=True, help="Read the password from the first line of standard input.")
@query_options
def create(name: str, values: Values, password_stdin: bool, connection: Connection, as_json: bool) -> None:
    """Create a tenant: a user with a password, all rights on what begins with NAME and a dot, and limits.

    The password is generated and shown once, unless it is given. Rates hold on each broker for itself, as all quotas of
    Kafka do; the other limits hold in the whole cluster. Without --topics and --partitions a tenant may have 100 and
    1000; `unlimited` removes a limit.

    Example: penstock tenant create acme --topics 100 --partitions 1000 --storage 50GB --produce 20MB/s
    """
    from penstock.cli.tenant import cluster

    values = {**DEFAULTS, **values}
    check_limited(name, values)
    password = read_password(None, from_stdin=True) if password_stdin else secrets.token_urlsafe(PASSWORD_BYTES)
    with open_client(connection) as client:
        if cluster.find_tenants(client, [name]):
            raise CommandFailure(
                f"there is a tenant {name} already", "it has limits", f"change them with `penstock tenant alter {name}`"
            )
        if cluster.mechanisms_of(client, name):
            raise CommandFailure(
                f"there is a user {name} already",
                "a tenant would get its name, and another password",
                f"choose another name, or first `penstock security user delete {name}`",
            )
        owned = cluster.topics_of(client, name)
        cluster.create(client, name, password, values)
        brokers = _brokers(client)
    if as_json:
        limits = {key: value for key, value in values.items() if value is not None}
        print_json({"tenant": name, "prefix": f"{name}.", "password": password, "limits": limits})
        return
    click.echo(f"created tenant {click.style(name, bold=True)}: it owns every name that begins with {name}.")
    facts = [("user", name)]
    if not password_stdin:
        facts.append(("password", f"{password}   (shown only now)"))
    facts += [(BY_KEY[key].option, shown_limit(key, values.get(key), brokers)) for key in (*TENANT_LIMITS, *RATES)]
    print_facts(facts)
    if owned:
        click.echo(f"{plural(len(owned), 'topic')} of this name {'belongs' if len(owned) == 1 else 'belong'} to it now")


@command.command("list")
@query_options
def list_tenants(connection: Connection, as_json: bool) -> None:
    """List tenants with what they have and may have."""
    from penstock.cli.tenant import cluster

    with open_client(connection) as client:
        found = cluster.find_tenants(client)
    if as_json:
        print_json([json_of(tenant) for tenant in found])
    elif found:
        rows = [
            (
                tenant.name,
                *(used_of(tenant, key) for key in TENANT_LIMITS),
                *(shown_limit(key, limits_of(tenant).get(key), 1) for key in (PRODUCE, CONSUME)),
            )
            for tenant in found
        ]
        print_table(("tenant", "topics", "partitions", "storage", "produce/broker", "consume/broker"), rows)
    else:
        click.echo("no tenants: `penstock tenant create NAME` makes one", err=True)


@command.command()
@click.argument("name")
@query_options
def describe(name: str, connection: Connection, as_json: bool) -> None:
    """Show what a tenant has and may have. Tenants may ask about themselves."""
    from penstock.cli.tenant import cluster

    with open_client(connection) as client:
        tenant = cluster.find_tenant(client, name)
        brokers = _brokers(client)
    if as_json:
        print_json(json_of(tenant))
        return
    now = {PRODUCE: tenant.produce_rate, CONSUME: tenant.consume_rate}
    facts = [("tenant", click.style(name, bold=True)), ("owns", f"names that begin with {name}.")]
    facts += [(BY_KEY[key].option, used_of(tenant, key)) for key in TENANT_LIMITS]
    for key in RATES:
        shown = shown_limit(key, limits_of(tenant).get(key), brokers)
        if now.get(key):
            shown += f"; now {show_rate(key, round(now[key]))} in all"
        facts.append((BY_KEY[key].option, shown))
    if tenant.refused_batches:
        facts.append(("refused", f"{tenant.refused_batches:,} batches, since there was no room for them"))
    print_facts(facts)


@command.command()
@click.argument("name")
@limit_options
@connection_options
def alter(name: str, values: Values, connection: Connection) -> None:
    """Change limits of a tenant; `unlimited` removes one, and those that are not named stay.

    A limit below what a tenant has takes nothing away: there is only no room for more.
    """
    from penstock.cli.tenant import cluster

    if not values:
        options = ", ".join(f"--{BY_KEY[key].option}" for key in (*TENANT_LIMITS, *RATES))
        raise click.UsageError(f"Say which limit: {options}.")
    with open_client(connection) as client:
        tenant = cluster.find_tenant(client, name)
        check_limited(name, {**limits_of(tenant), **values})
        cluster.set_limits(client, name, values, f"tenant {name} cannot be changed")
        brokers = _brokers(client)
    for key, value in values.items():
        click.echo(f"{name}: {BY_KEY[key].option} {shown_limit(key, value, brokers)}")
    for key, amount in amounts_of(tenant).items():
        value = values.get(key)
        if value is not None and amount > value:
            click.echo(f"note: it has {show_rate(key, amount)} already, which stays", err=True)


@command.command()
@click.argument("name")
@click.option("--with-topics", is_flag=True, help="Delete its topics and their records too.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@connection_options
def delete(name: str, with_topics: bool, yes: bool, connection: Connection) -> None:
    """Delete a tenant: its user, rights and limits; its groups, and with --with-topics its topics.

    Its rights are gone with the next request, on open connections too.
    """
    from penstock.cli.tenant import cluster

    with open_client(connection) as client:
        cluster.find_tenant(client, name)
        topics = cluster.topics_of(client, name)
        if topics and not with_topics:
            more = "" if len(topics) <= TOPICS_NAMED_MAX else f" and {len(topics) - TOPICS_NAMED_MAX} more"
            raise CommandFailure(
                f"tenant {name} has {plural(len(topics), 'topic')}",
                f"no tenant would own {', '.join(topics[:TOPICS_NAMED_MAX])}{more}",
                "add --with-topics to delete them and their records",
            )
        what = (
            f"tenant {name} with {plural(len(topics), 'topic')} and all their records" if topics else f"tenant {name}"
        )
        confirm(f"Delete {what}?", yes)
        entries = cluster.forbid(client, name)
        cluster.delete_topics(client, topics)
        groups, left = _delete_groups(client, name)
        cluster.forget_limits(client, name)
    gone = f"{plural(entries, 'right')}, {plural(len(topics), 'topic')}, {plural(groups, 'group')}"
    click.echo(f"deleted {click.style(name, bold=True)}: its user, {gone} and its limits")
    for failure in left:
        click.echo(f"note: {failure}", err=True)


def _brokers(client: WireClient) -> int:
    from penstock.cli.cluster.view import read_brokers

    return sum(not broker.fenced for broker in read_brokers(client)[2].values())


def _delete_groups(client: WireClient, name: str) -> tuple[int, list[str]]:
    """Delete the groups of a tenant; returns how many, and why others are left."""
    from penstock.cli.group.queries import delete_groups, list_groups

    names = [group.group_id for group in list_groups(client) if group.group_id.startswith(f"{name}.")]
    results = delete_groups(client, names)
    failures = [failure.message for failure in results.values() if failure is not None]
    return len(results) - len(failures), failures
