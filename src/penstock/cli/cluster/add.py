"""`penstock cluster add`: instructions for a new broker, and the wait until it has joined."""

from __future__ import annotations

import sys
import time

import click

from penstock.cli.cluster.moves import carry_out, show_plan
from penstock.cli.cluster.quorum import read_quorum
from penstock.cli.cluster.rebalance import plan_rebalance
from penstock.cli.cluster.view import ClusterView, patiently, read_view
from penstock.cli.failures import CommandFailure
from penstock.cli.options import Connection, connection_options
from penstock.cli.style import StyledCommand
from penstock.cli.wire_client import WireClient
from penstock.client.view import QuorumView

POLL_S = 0.5


@click.command(cls=StyledCommand)
@click.option("--node-id", type=click.IntRange(0), help="The new broker's id. Default: one more than the largest.")
@click.option("--host", default="NEW-HOST", help="The name or address that clients reach it by.")
@click.option("--port", type=click.IntRange(1, 65535), default=9092, show_default=True)
@click.option("--rack", help="Its rack, for spreading replicas.")
@click.option("--data", default="/var/lib/penstock", show_default=True, help="Where it keeps its data.")
@click.option("--no-wait", is_flag=True, help="Only print the instructions.")
@click.option("--timeout", "timeout_s", type=float, default=600, show_default=True, help="Seconds to wait for it.")
@click.option("--rebalance", is_flag=True, help="Then move its share of replicas to it without asking.")
@connection_options
def command(
    connection: Connection,
    node_id: int | None,
    host: str,
    port: int,
    rack: str | None,
    data: str,
    no_wait: bool,
    timeout_s: float,
    rebalance: bool,
) -> None:
    """Add a broker: print instructions and wait until it has joined.

    Prints the new node's settings and the commands for its host, waits until the broker has registered, and offers to
    move replicas to it.
    """
    with WireClient(connection) as client:
        view = read_view(client)
        quorum = read_quorum(client)
        taken = {*view.brokers, *(node.node_id for node in quorum.voters)}
        number = node_id if node_id is not None else max(taken, default=0) + 1
        if number in taken and not (number in view.brokers and view.brokers[number].fenced):
            raise CommandFailure(f"there is already a node {number}", "node ids are unique", "choose another --node-id")
        click.echo(instructions(view, quorum, number, host, port, rack, data))
        if no_wait:
            return
        _wait_for(client, number, timeout_s)
        _offer_rebalance(client, number, rebalance)


def instructions(
    view: ClusterView, quorum: QuorumView, node_id: int, host: str, port: int, rack: str | None, data: str
) -> str:
    """The settings file of the new broker, and the commands for its host."""
    controllers = [node.address for node in quorum.voters if node.address is not None]
    servers = ",".join(controllers) or "CONTROLLER-HOST:9093"
    lines = [
        f"# 1. On {host}, as /etc/penstock/server.properties:",
        "process.roles=broker",
        f"node.id={node_id}",
        f"listeners=PLAINTEXT://:{port}",
        f"advertised.listeners=PLAINTEXT://{host}:{port}",
        "controller.listener.names=CONTROLLER",
        f"controller.quorum.bootstrap.servers={servers}",
        f"log.dirs={data}",
        *([f"broker.rack={rack}"] if rack else []),
        "",
        "# 2. On that host, once:",
        f"penstock storage format --config /etc/penstock/server.properties --cluster-id {view.cluster_id}",
        "",
        "# 3. On that host, to start it (or with the systemd unit in deploy/):",
        "penstock server --config /etc/penstock/server.properties",
    ]
    return "\n".join(lines)


def _wait_for(client: WireClient, node_id: int, timeout_s: float) -> None:
    click.echo(f"\nwaiting for broker {node_id} … (Ctrl-C stops waiting, not the broker)")
    deadline = time.monotonic() + timeout_s
    while True:
        broker = patiently(lambda: read_view(client)).brokers.get(node_id)
        if broker is not None and not broker.fenced:
            click.echo(f"broker {node_id} has joined: {broker.host}:{broker.port}")
            return
        if time.monotonic() > deadline:
            state = "has registered, but has not caught up with the metadata" if broker else "has not registered"
            raise CommandFailure(
                f"broker {node_id} {state} within {timeout_s:g} seconds",
                "its log has the reason",
                "check the controllers' addresses and the cluster id it was formatted with",
            )
        time.sleep(POLL_S)


def _offer_rebalance(client: WireClient, node_id: int, rebalance: bool) -> None:
    view = read_view(client)
    plan = plan_rebalance(view)
    if not plan:
        return
    show_plan(client, view, plan)
    if not rebalance and not (sys.stdin.isatty() and click.confirm(f"Move these replicas to broker {node_id} now?")):
        click.echo("`penstock cluster rebalance` does it later")
        return
    click.echo(f"done: {carry_out(client, view, plan, None, quiet=False).sentence()}")
