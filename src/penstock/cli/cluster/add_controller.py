"""`penstock cluster add-controller`: add a voter to a dynamic quorum (KIP-853)."""

from __future__ import annotations

import click

from penstock.cli.cluster.quorum import read_quorum
from penstock.cli.failures import CommandFailure
from penstock.cli.options import Connection, connection_options
from penstock.cli.server import load_settings
from penstock.cli.storage.format import read_directories
from penstock.cli.style import StyledCommand
from penstock.cli.wire_client import WireClient, check_error
from penstock.config.node import NodeSettings
from penstock.model.errors import ErrorCode
from penstock.storage.metadata_files import MetaProperties
from penstock.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener

TIMEOUT_MS = 30_000
ADVICE: dict[int, str] = {
    ErrorCode.REQUEST_TIMED_OUT: "check that the node is running and fetching: `penstock cluster quorum` shows its lag",
    ErrorCode.UNSUPPORTED_VERSION: (
        "the quorum is static (controller.quorum.voters): change the list in the file of every node instead"
    ),
}


@click.command(cls=StyledCommand)
@click.option(
    "-c",
    "--config",
    type=click.Path(dir_okay=False),
    required=True,
    help="The new controller's server.properties: run this on its host, where its directories are.",
)
@connection_options
def command(connection: Connection, config: str) -> None:
    """Add a voter to the controller quorum.

    The node must have been formatted with --no-initial-controllers and be running: it already replicates the metadata
    log, and becomes a voter once it has caught up.
    """
    settings = load_settings(config, {})
    directory = _metadata_directory(settings)
    listeners = [
        Listener(one.name, one.host or "localhost", one.port)
        for one in settings.advertised_listeners
        if one.name in settings.controller_listener_names
    ]
    with WireClient(connection, timeout_s=TIMEOUT_MS / 1000 + 5) as client:
        if any(node.node_id == settings.node_id for node in read_quorum(client).voters):
            click.echo(f"node {settings.node_id} is already a voter")
            return
        request = AddRaftVoterRequest(
            cluster_id=directory.cluster_id,
            timeout_ms=TIMEOUT_MS,
            voter_id=settings.node_id,
            voter_directory_id=directory.directory_id,
            listeners=listeners,
        )
        response: AddRaftVoterResponse = client.ask(request)
        what = f"node {settings.node_id} could not be added as a voter"
        check_error(response.error_code, response.error_message, what, ADVICE.get(response.error_code, ""))
    click.echo(f"node {settings.node_id} is a voter now; `penstock cluster quorum` shows the others")


def _metadata_directory(settings: NodeSettings) -> MetaProperties:
    if not settings.is_controller:
        raise CommandFailure(
            f"node {settings.node_id} is not a controller",
            f"process.roles is {','.join(sorted(settings.roles))}",
            "add controller to process.roles, and a listener for it",
        )
    present = {str(path): found for path, found in read_directories(settings).items()}.get(settings.metadata_log_dir)
    if present is None:
        raise CommandFailure(
            f"{settings.metadata_log_dir} is not formatted",
            "the quorum identifies its voters by their directory ids",
            "format it with `penstock storage format --no-initial-controllers` and start the node, then run this again",
        )
    return present
