"""`penstock cluster rebalance`: replicas and leaders spread evenly, with few moves."""

from __future__ import annotations

import json

import click

from penstock.cli.cluster.moves import carry_out, copies, settle, show_plan, throttle_option
from penstock.cli.cluster.plan import Plan, rebalance
from penstock.cli.cluster.reassignment_file import format_plan
from penstock.cli.cluster.reassignment_requests import not_preferred
from penstock.cli.cluster.view import ClusterView, read_view
from penstock.cli.failures import CommandFailure
from penstock.cli.options import Connection, confirm, query_options
from penstock.cli.render import print_json
from penstock.cli.style import StyledCommand
from penstock.cli.wire_client import WireClient


@click.command(cls=StyledCommand)
@click.option("--dry-run", is_flag=True, help="Show the plan and change nothing; with -o json it is Kafka's JSON.")
@throttle_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@query_options
def command(connection: Connection, as_json: bool, dry_run: bool, throttle: int | None, yes: bool) -> None:
    """Spread replicas and leaders evenly over the brokers.

    Replicas of a partition go to different racks. Only as much is moved as necessary. It can be run again at any time:
    ongoing reassignments continue, and only what is still uneven is planned.
    """
    with WireClient(connection) as client:
        view = read_view(client)
        plan = plan_rebalance(view)
        astray = not_preferred(view.partitions)
        if not plan and not view.ongoing and not astray:
            click.echo("{}" if as_json else "replicas and leaders are spread evenly: there is nothing to do")
            return
        if dry_run:
            if as_json:
                print_json(json.loads(format_plan(plan)))
            else:
                show_plan(client, view, plan)
            return
        if plan and not as_json:
            show_plan(client, view, plan)
        if plan:
            confirm("Move them?", yes)
        progress = carry_out(client, view, plan, throttle, quiet=as_json)
        settle(client, {name.topic for name in view.partitions}, throttled=False)
    if as_json:
        print_json({"partitions": len(plan), "replicas_copied": copies(view, plan), "bytes": progress.total_bytes})
    else:
        click.echo(f"done: {progress.sentence()}")


def plan_rebalance(view: ClusterView) -> Plan:
    """The plan for the running brokers. Raises CommandFailure if one is down."""
    down = [str(broker.node_id) for broker in view.brokers.values() if broker.fenced]
    if down:
        raise CommandFailure(
            f"broker {', '.join(down)} is down",
            "replicas are balanced only while all brokers are up",
            "start it, or remove it with `penstock cluster decommission`",
        )
    return rebalance(view.assignment(), view.alive())
