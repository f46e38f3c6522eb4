"""`penstock cluster disks`: the data directories of all brokers."""

from __future__ import annotations

from collections.abc import Iterable

import click

from penstock.cli.cluster.view import read_brokers
from penstock.cli.options import Connection, query_options
from penstock.cli.render import human_bytes, plural, print_json, print_table
from penstock.cli.style import StyledCommand
from penstock.cli.wire_client import WireClient
from penstock.client.disks import DiskView, disks_of, duration
from penstock.client.failures import NoAnswer
from penstock.client.view import BrokerView
from penstock.wire.messages.describe_log_dirs import DescribeLogDirsRequest

TITLES = ("broker", "directory", "state", "used", "free", "replicas", "size", "moving here", "full")


@click.command(cls=StyledCommand)
@click.option("--broker", "only", type=click.IntRange(0), help="Show this broker's only.")
@query_options
def command(connection: Connection, only: int | None, as_json: bool) -> None:
    """Show the brokers' data directories: space, replicas, moves between them, and when they will be full."""
    with WireClient(connection) as client:
        brokers = read_brokers(client)[2]
        chosen = [broker for broker in brokers.values() if not broker.fenced and only in (None, broker.node_id)]
        disks = read_disks(client, chosen)
    if as_json:
        print_json([_document(disk) for disk in disks])
        return
    print_table(TITLES, [_row(disk) for disk in disks])


def read_disks(client: WireClient, brokers: Iterable[BrokerView]) -> list[DiskView]:
    """The data directories of these brokers; those of brokers that do not answer are left out."""
    found: list[DiskView] = []
    for broker in brokers:
        try:
            found += disks_of(broker.node_id, client.ask_at(broker.address, DescribeLogDirsRequest(None)))
        except NoAnswer:
            click.echo(f"note: broker {broker.node_id} does not answer", err=True)
    return found


def _row(disk: DiskView) -> tuple[object, ...]:
    state = "cordoned" if disk.is_cordoned else "online"
    if not disk.is_online:
        return disk.broker, disk.path, "offline", None, None, None, None, None, None
    used = disk.used_percent
    return (
        disk.broker,
        disk.path,
        state,
        None if used is None else f"{used:.0f} %",
        None if disk.free_bytes is None else human_bytes(disk.free_bytes),
        len(disk.replicas),
        human_bytes(disk.size_bytes),
        moving_text(disk) or None,
        None if disk.full_in_ms is None else f"in {duration(disk.full_in_ms)}",
    )


def moving_text(disk: DiskView) -> str:
    """How many replicas are on their way to a directory, and what they lack."""
    if not disk.arriving:
        return ""
    lag = sum(one.lag for one in disk.arriving.values())
    return f"{plural(len(disk.arriving), 'replica')}, {plural(lag, 'record')} behind"


def _document(disk: DiskView) -> dict[str, object]:
    return {
        "broker": disk.broker,
        "directory": disk.path,
        "online": disk.is_online,
        "cordoned": disk.is_cordoned,
        "total_bytes": disk.total_bytes,
        "free_bytes": disk.free_bytes,
        "full_in_ms": disk.full_in_ms,
        "replicas": len(disk.replicas),
        "size_bytes": disk.size_bytes,
        "moving": [
            {"topic": name.topic, "partition": name.partition, "size_bytes": one.size_bytes, "lag": one.lag}
            for name, one in sorted(disk.arriving.items())
        ],
    }
