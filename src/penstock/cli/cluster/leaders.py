"""`penstock cluster leaders`: leaders by broker, and elections."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from penstock.cli.client import open_client
from penstock.cli.options import Connection, confirm, query_options
from penstock.cli.render import documents, plural, print_json, print_table
from penstock.cli.style import StyledCommand

if TYPE_CHECKING:
    from penstock.cli.cluster.view import ClusterView
    from penstock.model.ids import TopicPartition


@click.command(cls=StyledCommand)
@click.option("--elect", is_flag=True, help="Elect preferred leaders that are in sync.")
@click.option(
    "--unclean",
    multiple=True,
    metavar="TOPIC:PARTITION",
    help="Unclean election: let an out-of-sync replica, which may miss records, lead this partition.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@query_options
def command(connection: Connection, as_json: bool, elect: bool, unclean: tuple[str, ...], yes: bool) -> None:
    """Show partition leaders, and elect preferred leaders.

    The first of a partition's replicas is its preferred leader. Brokers elect preferred leaders by themselves after a
    while (auto.leader.rebalance.enable); --elect does it now.
    """
    from penstock.cli.cluster.reassignment_requests import PREFERRED, UNCLEAN, elect_leaders, not_preferred, refuse
    from penstock.cli.cluster.view import read_view

    names = [parse_partition(text) for text in unclean]
    elected: list[TopicPartition] = []
    with open_client(connection) as client:
        if names:
            shown = ", ".join(map(str, names))
            confirm(f"Elect a leader for {shown} that may miss acknowledged records?", yes)
            done, refused = elect_leaders(client, UNCLEAN, names)
            elected += done
            refuse(refused, "no leader could be elected")
        if elect:
            wanted = not_preferred(read_view(client).partitions)
            done, refused = elect_leaders(client, PREFERRED, wanted) if wanted else ([], [])
            elected += done
            for sentence in refused:
                click.echo(f"not elected: {sentence}", err=True)
        view = read_view(client)
    astray = not_preferred(view.partitions)
    rows = leader_rows(view)
    if as_json:
        print_json(
            {
                "brokers": documents(("node_id", "leads", "preferred", "difference"), rows),
                "not_preferred": [name._asdict() for name in astray],
                "without_leader": sum(partition.leader < 0 for partition in view.partitions.values()),
                "elected": [name._asdict() for name in elected],
            }
        )
        return
    if elect or names:
        click.echo(f"{plural(len(elected), 'leader')} elected")
    print_table(("broker", "leads", "preferred", "difference"), rows)
    if astray:
        advice = "" if elect else "; `penstock cluster leaders --elect` elects them now"
        click.echo(f"{plural(len(astray), 'partition')} not led by the preferred leader{advice}")
    else:
        click.echo("every partition is led by its preferred leader")


def leader_rows(view: ClusterView) -> list[tuple[int, int, int, int]]:
    """Broker, partitions it leads, partitions it should lead, and the difference."""
    leads = Counter(partition.leader for partition in view.partitions.values())
    preferred = Counter(partition.replicas[0] for partition in view.partitions.values() if partition.replicas)
    return [(broker, leads[broker], preferred[broker], leads[broker] - preferred[broker]) for broker in view.brokers]


def parse_partition(text: str) -> TopicPartition:
    """`orders:3` as a partition."""
    from penstock.model.ids import TopicPartition

    topic, _, number = text.rpartition(":")
    if not topic or not number.isdigit():
        raise click.UsageError(f"{text!r} is not TOPIC:PARTITION, for example orders:3.")
    return TopicPartition(topic, int(number))
