"""`penstock txn …`: list, describe, abort."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from penstock.cli.client import open_client
from penstock.cli.failures import CommandFailure
from penstock.cli.options import Connection, confirm, connection_options, query_options
from penstock.cli.render import plural, print_facts, print_json, print_rows
from penstock.cli.style import StyledGroup

if TYPE_CHECKING:
    from penstock.cli.txn.admin import OpenTransaction, TransactionAdmin

# The brokers' default maximum of the transaction timeout, and some more for the abort itself.
IDLE_S = 1200.0
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


@click.group(cls=StyledGroup)
def command() -> None:
    """List, describe and abort transactions."""


@command.command("list")
@click.argument("pattern", default="*")
@click.option("--state", multiple=True, type=click.Choice(STATES, case_sensitive=False), help="Only in this state.")
@click.option("--hanging", is_flag=True, help="List open transactions that no coordinator will end.")
@click.option("--topic", help="With --hanging: only in this topic.")
@click.option("--idle-s", default=IDLE_S, show_default=True, help="With --hanging: idle for this many seconds.")
@query_options
def list_transactions(
    pattern: str,
    state: tuple[str, ...],
    hanging: bool,
    topic: str | None,
    idle_s: float,
    connection: Connection,
    as_json: bool,
) -> None:
    """List transactional ids that match PATTERN (`*`, `?` and `[a-z]` as in a shell), and their state."""
    import fnmatch

    from penstock.cli.txn.admin import TransactionAdmin

    with open_client(connection) as client:
        admin = TransactionAdmin(client)
        if hanging:
            _show_hanging(admin.hanging(topic, idle_s), as_json)
            return
        names = [one for one in admin.transactional_ids(state) if fnmatch.fnmatchcase(one, pattern)]
        rows = [_facts(admin, name) for name in names]
    print_rows(rows, ("transactional_id", "state", "producer_id", "producer_epoch", "open_s", "timeout_ms"), as_json)


@command.command()
@click.argument("name", metavar="ID")
@query_options
def describe(name: str, connection: Connection, as_json: bool) -> None:
    """Show the transaction of a transactional id: its producer, state, age and partitions."""
    from penstock.cli.txn.admin import TransactionAdmin

    with open_client(connection) as client:
        facts = _facts(TransactionAdmin(client), name)
    if as_json:
        print_json(facts)
        return
    partitions = ", ".join(facts.pop("partitions")) or "none"
    print_facts([*((one.replace("_", " "), "-" if value is None else value) for one, value in facts.items())])
    print_facts([("partitions", partitions)])


@command.command()
@click.argument("name", metavar="[ID]", required=False)
@click.option("--hanging", is_flag=True, help="Abort every hanging transaction (see `txn list --hanging`).")
@click.option("--topic", help="With --hanging: only in this topic.")
@click.option("--idle-s", default=IDLE_S, show_default=True, help="With --hanging: not written to for so many seconds.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connection_options
def abort(name: str | None, hanging: bool, topic: str | None, idle_s: float, yes: bool, connection: Connection) -> None:
    """Abort the open transaction of a transactional id, or hanging transactions.

    The id's current producer is fenced: its next call fails and it must restart.
    """
    from penstock.cli.txn.admin import TransactionAdmin

    if (name is None) == (not hanging):
        raise CommandFailure("name a transactional id, or --hanging", "", "`penstock txn list` shows the ids")
    with open_client(connection) as client:
        admin = TransactionAdmin(client)
        if name is not None:
            row = admin.describe(name)
            confirm(f"Abort the transaction of {name} ({row.transaction_state}) and fence its producer?", yes)
            admin.abort(name)
            click.echo(f"aborted; the producer of {name} must restart")
            return
        found = admin.hanging(topic, idle_s)
        if found:
            confirm(f"Abort {plural(len(found), 'hanging transaction')}?", yes)
        for one in found:
            admin.end_hanging(one)
            click.echo(f"aborted producer {one.producer.producer_id} in {one.partition}")
        if not found:
            click.echo("there are no hanging transactions")


def _facts(admin: TransactionAdmin, name: str) -> dict[str, Any]:
    import time

    from penstock.cli.txn.admin import OPEN_STATES

    row = admin.describe(name)
    is_open = row.transaction_state in OPEN_STATES
    return {
        "transactional_id": row.transactional_id,
        "state": row.transaction_state,
        "producer_id": row.producer_id,
        "producer_epoch": row.producer_epoch,
        "open_s": round(max(0.0, time.time() - row.transaction_start_time_ms / 1000), 1) if is_open else None,
        "timeout_ms": row.transaction_timeout_ms,
        "partitions": [f"{data.topic}:{index}" for data in row.topics for index in data.partitions],
    }


def _show_hanging(found: list[OpenTransaction], as_json: bool) -> None:
    import time

    rows = [
        {
            **one.partition._asdict(),
            "producer_id": one.producer.producer_id,
            "producer_epoch": one.producer.producer_epoch,
            "first_offset": one.producer.current_txn_start_offset,
            "idle_s": round(one.age_s(time.time()), 1),
        }
        for one in found
    ]
    print_rows(rows, ("topic", "partition", "producer_id", "producer_epoch", "first_offset", "idle_s"), as_json)
    if not as_json:
        click.echo("`penstock txn abort --hanging` aborts them" if found else "there are no hanging transactions")
