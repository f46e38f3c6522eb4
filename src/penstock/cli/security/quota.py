"""`penstock security quota …`: what users, clients and addresses may take of the brokers (KIP-13, KIP-546)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.options import Connection, confirm, connection_options, query_options
from penstock.cli.render import print_json, print_table
from penstock.cli.style import StyledGroup

if TYPE_CHECKING:
    from penstock.wire.messages.alter_client_quotas import OpData

DEFAULT = "default"
# The name of the option, and Kafka's word for what it names.
KINDS = {"user": "user", "client_id": "client-id", "ip": "ip"}
Entity = tuple[tuple[str, str | None], ...]


@click.group(cls=StyledGroup)
def command() -> None:
    """Limit what users, clients and addresses take of each broker. Who takes more is slowed down, not refused.

    The most precise limit counts: user and client id together before the user, the user before the client id, each
    before the default.
    """


def entity_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add --user, --client-id and --ip; the command receives them as `entity`."""

    @click.option("--user", metavar="NAME|default", help="A user; `default` for all who have no limit of their own.")
    @click.option("--client-id", metavar="ID|default", help="A client id, alone or together with --user.")
    @click.option("--ip", metavar="ADDRESS|default", help="An address, for --connections.")
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        given = {kind: kwargs.pop(option) for option, kind in KINDS.items()}
        if given["ip"] is not None and (given["user"] is not None or given["client-id"] is not None):
            raise click.UsageError("--ip stands alone: connections have no user yet.")
        entity: Entity = tuple(
            (kind, None if name == DEFAULT else name) for kind, name in given.items() if name is not None
        )
        function(*args, entity=entity, **kwargs)

    return wrapped


@command.command("set")
@entity_options
@click.option("--produce", metavar="RATE", help="Bytes a second written: 20MB/s.")
@click.option("--consume", metavar="RATE", help="Bytes a second read: 60MB/s.")
@click.option("--requests", metavar="PERCENT", help="Time of a broker's threads: 50%.")
@click.option("--mutations", metavar="RATE", help="Partitions created and deleted a second: 10/s.")
@click.option("--connections", metavar="RATE", help="With --ip: new connections a second: 5/s.")
@connection_options
def set_quota(entity: Entity, connection: Connection, **rates: str | None) -> None:
    """Set limits, on each broker for itself. Those that are not named stay as they are."""
    from penstock.cli.security.rates import QUOTAS, parse_rate, show_rate
    from penstock.wire.messages.alter_client_quotas import OpData

    _require(entity)
    _check_fits(entity, [name for name, text in rates.items() if text is not None])
    changes = [
        OpData(quota.key, parse_rate(quota, text)) for quota in QUOTAS if (text := rates[quota.option]) is not None
    ]
    if not changes:
        raise click.UsageError("Say which limit: --produce, --consume, --requests, --mutations or --connections.")
    _alter(connection, entity, changes, "set")
    for change in changes:
        click.echo(f"{_shown(entity)}: {change.key} {show_rate(change.key, change.value)}")


@command.command("list")
@entity_options
@query_options
def list_quotas(entity: Entity, connection: Connection, as_json: bool) -> None:
    """List limits: all, or those whose entity has what is named, also together with something else."""
    from penstock.cli.security.rates import show_rate

    found = _known(connection, entity, strict=False)
    if as_json:
        print_json([{"entity": [{"type": k, "name": n} for k, n in one], "quotas": values} for one, values in found])
        return
    rows = [(_shown(one), key, show_rate(key, value)) for one, values in found for key, value in values.items()]
    print_table(("entity", "quota", "limit"), rows)


@command.command()
@entity_options
@click.option("--produce", is_flag=True, help="Only this limit; without any, all limits of the entity.")
@click.option("--consume", is_flag=True, help="Only this limit.")
@click.option("--requests", is_flag=True, help="Only this limit.")
@click.option("--mutations", is_flag=True, help="Only this limit.")
@click.option("--connections", is_flag=True, help="Only this limit.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connection_options
def delete(entity: Entity, yes: bool, connection: Connection, **chosen: bool) -> None:
    """Delete limits of an entity, all of them or some."""
    from penstock.cli.security.rates import QUOTAS
    from penstock.wire.messages.alter_client_quotas import OpData

    _require(entity)
    wanted = {quota.key for quota in QUOTAS if chosen[quota.option]} or {quota.key for quota in QUOTAS}
    present = [key for _, values in _known(connection, entity, strict=True) for key in values if key in wanted]
    if not present:
        click.echo(f"{_shown(entity)} has no such limit")
        return
    confirm(f"Delete {', '.join(present)} of {_shown(entity)}?", yes)
    _alter(connection, entity, [OpData(key, 0.0, True) for key in present], "deleted")
    click.echo(f"{_shown(entity)}: deleted {', '.join(present)}")


def _require(entity: Entity) -> None:
    if not entity:
        raise click.UsageError("Say whose limits: --user, --client-id, both, or --ip; `default` for all others.")


def _check_fits(entity: Entity, named: Sequence[str]) -> None:
    is_address = entity[0][0] == "ip"
    if is_address and any(name != "connections" for name in named):
        raise click.UsageError("An address has one limit, --connections; the others are of users and client ids.")
    if not is_address and "connections" in named:
        raise click.UsageError("--connections is a limit of addresses: use it with --ip.")


def _known(connection: Connection, entity: Entity, *, strict: bool) -> list[tuple[Entity, dict[str, float]]]:
    from penstock.cli.wire_client import ask_cluster
    from penstock.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

    exact, default = 0, 1
    components = [ComponentData(kind, default if name is None else exact, name) for kind, name in entity]
    response = ask_cluster(connection, DescribeClientQuotasRequest(components, strict), "quotas cannot be listed")
    found = [
        (
            tuple((part.entity_type, part.entity_name) for part in entry.entity),
            {value.key: value.value for value in sorted(entry.values)},
        )
        for entry in response.entries or ()
    ]
    return sorted(found, key=lambda one: [(kind, name or "") for kind, name in one[0]])


def _alter(connection: Connection, entity: Entity, changes: Sequence[OpData], what: str) -> None:
    from penstock.cli.wire_client import ask_cluster, check_error
    from penstock.wire.messages.alter_client_quotas import (
        AlterClientQuotasRequest,
        AlterClientQuotasRequestEntryData,
        EntityData,
    )

    entry = AlterClientQuotasRequestEntryData([EntityData(*part) for part in entity], changes)
    for result in ask_cluster(connection, AlterClientQuotasRequest([entry], validate_only=False)).entries:
        check_error(result.error_code, result.error_message, f"the limits of {_shown(entity)} cannot be {what}")


def _shown(entity: Entity) -> str:
    return ", ".join(f"{kind} {DEFAULT if name is None else name}" for kind, name in entity)
