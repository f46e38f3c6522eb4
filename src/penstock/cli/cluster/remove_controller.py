"""`penstock cluster remove-controller`: remove a voter from a dynamic quorum (KIP-853)."""

from __future__ import annotations

import click

from penstock.cli.cluster.quorum import read_quorum
from penstock.cli.cluster.view import read_view
from penstock.cli.failures import CommandFailure
from penstock.cli.options import Connection, confirm, connection_options
from penstock.cli.style import StyledCommand
from penstock.cli.wire_client import WireClient, check_error
from penstock.model.ids import parse_uuid
from penstock.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse


@click.command(cls=StyledCommand)
@click.argument("node_id", type=click.IntRange(0))
@click.option("--directory-id", help="The voter's directory id. Default: the one in the quorum.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connection_options
def command(connection: Connection, node_id: int, directory_id: str | None, yes: bool) -> None:
    """Remove a voter from the controller quorum."""
    with WireClient(connection) as client:
        cluster_id = read_view(client).cluster_id
        quorum = read_quorum(client)
        voter = next((node for node in quorum.voters if node.node_id == node_id), None)
        if voter is None:
            known = ", ".join(str(node.node_id) for node in quorum.voters)
            raise CommandFailure(f"node {node_id} is not a voter", f"the voters are {known}")
        left = len(quorum.voters) - 1
        if left == 0:
            raise CommandFailure(
                f"node {node_id} is the only voter",
                "a quorum needs at least one voter",
                "add another with `penstock cluster add-controller` first",
            )
        survives = (left - 1) // 2
        confirm(f"Remove node {node_id}? {left} voters remain, which tolerate the loss of {survives}.", yes)
        try:
            directory = parse_uuid(directory_id or voter.directory_id)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        response: RemoveRaftVoterResponse = client.ask(RemoveRaftVoterRequest(cluster_id, node_id, directory))
        check_error(
            response.error_code,
            response.error_message,
            f"node {node_id} could not be removed",
            "where controller.quorum.voters names the voters, change that list on every node instead",
        )
    click.echo(f"node {node_id} is no longer a voter; it may be stopped")
