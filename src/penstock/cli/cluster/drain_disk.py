"""`penstock cluster drain-disk`: move all replicas of a data directory to the other ones of its broker.

The state is the broker's: the command may be interrupted and run again at any point.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping

import click

from penstock.cli.cluster.disk_plan import NoRoom, plan_drain
from penstock.cli.cluster.disks import read_disks
from penstock.cli.cluster.moves import throttle_option
from penstock.cli.cluster.reassignment_requests import BROKER_RESOURCE, config_change, refuse
from penstock.cli.cluster.view import patiently, read_brokers
from penstock.cli.failures import CommandFailure
from penstock.cli.options import Connection, confirm, connection_options
from penstock.cli.render import human_bytes, plural, print_table
from penstock.cli.style import StyledCommand
from penstock.cli.wire_client import WireClient, check_error
from penstock.client.disks import DiskView
from penstock.client.failures import NoAnswer
from penstock.client.operations.routing import by_topic
from penstock.client.view import BrokerView
from penstock.model.errors import error_name
from penstock.model.ids import TopicPartition
from penstock.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from penstock.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
INTERVAL_S = 0.5
LINE_INTERVAL_S = 5.0


@click.command(cls=StyledCommand)
@click.argument("broker", type=click.IntRange(0))
@click.argument("directory")
@throttle_option
@click.option("--dry-run", is_flag=True, help="Show what would move, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connection_options
def command(
    connection: Connection, broker: int, directory: str, throttle: int | None, dry_run: bool, yes: bool
) -> None:
    """Move all replicas of a data directory to the other ones of its broker.

    Cordon the directory first (cordoned.log.dirs), or new topics may still get replicas there. If the command was
    interrupted, run it again: moves continue without it.
    """
    with WireClient(connection) as client:
        view = _broker(client, broker)
        disks = _disks(client, view)
        source = _source(disks, broker, directory)
        plan = _plan(source, disks)
        _show(source, plan)
        if dry_run:
            return
        if not source.is_cordoned:
            click.echo(f"note: {source.path} is not cordoned; new topics may still get replicas there", err=True)
        if plan:
            confirm(f"Move {plural(len(plan), 'replica')} off {source.path}?", yes)
        if throttle is not None:
            _set_throttle(client, broker, str(throttle))
        try:
            _empty(client, view, source.path)
        except KeyboardInterrupt:
            click.echo("\nthe moves continue without this command; run it again to watch them", err=True)
            sys.exit(130)
        if throttle is not None:
            _set_throttle(client, broker, None)
    click.echo(f"{source.path} of broker {broker} has no replicas left")


def _broker(client: WireClient, number: int) -> BrokerView:
    brokers = read_brokers(client)[2]
    found = brokers.get(number)
    if found is None or found.fenced:
        why = "it is down" if found is not None else f"the cluster has {', '.join(map(str, brokers))}"
        raise CommandFailure(f"there is no broker {number} to ask", why, "`penstock cluster info` shows the brokers")
    return found


def _disks(client: WireClient, broker: BrokerView) -> list[DiskView]:
    disks = read_disks(client, [broker])
    if not disks:
        raise CommandFailure(f"broker {broker.node_id} does not tell its data directories", "it did not answer")
    return disks


def _source(disks: list[DiskView], broker: int, path: str) -> DiskView:
    for disk in disks:
        if disk.path == (path.rstrip("/") or "/"):
            if not disk.is_online:
                why = "what cannot be read cannot be moved"
                advice = f"mend it and start broker {broker} again, or decommission the broker"
                raise CommandFailure(f"{path} is offline", why, advice)
            return disk
    shown = ", ".join(disk.path for disk in disks)
    raise CommandFailure(f"{path} is not a data directory of broker {broker}", f"it has {shown}")


def _plan(source: DiskView, disks: list[DiskView]) -> dict[TopicPartition, str]:
    try:
        return plan_drain(source, disks)
    except NoRoom as error:
        raise CommandFailure(
            f"{source.path} cannot be emptied: its replicas do not fit on the other disks; nothing was changed",
            f"{error.name} needs {human_bytes(error.size_bytes)}",
            "add a directory to log.dirs, lower retention, or move replicas to other brokers with "
            "`penstock cluster reassign`",
        ) from None


def _by_path(plan: Mapping[TopicPartition, str]) -> dict[str, list[TopicPartition]]:
    found: dict[str, list[TopicPartition]] = {}
    for name, path in plan.items():
        found.setdefault(path, []).append(name)
    return found


def _show(source: DiskView, plan: Mapping[TopicPartition, str]) -> None:
    rows = [
        (path, len(names), human_bytes(sum(source.replicas[name] for name in names)))
        for path, names in sorted(_by_path(plan).items())
    ]
    if rows:
        print_table(("to", "replicas", "size"), rows)


def _empty(client: WireClient, broker: BrokerView, path: str) -> None:
    """Move replicas until the directory has none; those that are created there meanwhile too."""
    shown_at = float("-inf")
    while True:
        disks = patiently(lambda: _disks(client, broker))
        source = _source(disks, broker.node_id, path)
        if not source.replicas:
            return
        plan = _plan(source, disks)
        if plan:
            _move(client, broker, plan)
        if time.monotonic() - shown_at >= LINE_INTERVAL_S:
            shown_at = time.monotonic()
            lag = sum(one.lag for disk in disks for one in disk.arriving.values())
            click.echo(f"{plural(len(source.replicas), 'replica')} left, {plural(lag, 'record')} to copy", err=True)
        time.sleep(INTERVAL_S)


def _move(client: WireClient, broker: BrokerView, plan: Mapping[TopicPartition, str]) -> None:
    rows = [
        AlterReplicaLogDir(path, [AlterReplicaLogDirTopic(*row) for row in by_topic(names).items()])
        for path, names in _by_path(plan).items()
    ]
    try:
        response: AlterReplicaLogDirsResponse = client.ask_at(broker.address, AlterReplicaLogDirsRequest(rows))
    except NoAnswer as error:
        raise CommandFailure(f"broker {broker.node_id} does not answer", str(error)) from error
    refused = [
        f"{topic.topic_name}-{row.partition_index}: {error_name(row.error_code)}"
        for topic in response.results
        for row in topic.partitions
        if row.error_code
    ]
    refuse(refused, "some replicas could not be moved")


def _set_throttle(client: WireClient, broker: int, rate: str | None) -> None:
    request = IncrementalAlterConfigsRequest([config_change(BROKER_RESOURCE, str(broker), {RATE: rate})])
    response: IncrementalAlterConfigsResponse = client.ask(request)
    for row in response.responses:
        check_error(row.error_code, row.error_message, "the throttle could not be set")
