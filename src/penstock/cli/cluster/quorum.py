"""`penstock cluster quorum`: the controllers and how far each has replicated the metadata log."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from penstock.cli.client import open_client
from penstock.cli.options import Connection, query_options
from penstock.cli.render import print_facts, print_json, print_table
from penstock.cli.style import StyledCommand

if TYPE_CHECKING:
    from penstock.cli.wire_client import WireClient
    from penstock.client.view import QuorumView


@click.command(cls=StyledCommand)
@query_options
def command(connection: Connection, as_json: bool) -> None:
    """Show the controller quorum: leader, voters, observers and their lag.

    Voters decide; observers, the brokers, follow. Lag is in records of the metadata log.
    """
    with open_client(connection) as client:
        quorum = read_quorum(client)
    if as_json:
        print_json(asdict(quorum))
        return
    print_facts(
        [
            ("leader", quorum.leader),
            ("epoch", quorum.epoch),
            ("high watermark", quorum.high_watermark),
            ("voters", ", ".join(str(node.node_id) for node in quorum.voters)),
        ]
    )
    now_ms = time.time_ns() // 1_000_000
    print_table(
        ("node", "role", "address", "log end", "lag", "last fetch", "caught up"),
        [
            (
                node.node_id,
                node.role,
                node.address,
                node.log_end_offset,
                node.lag,
                ago(now_ms, node.last_fetch_ms),
                ago(now_ms, node.last_caught_up_ms),
            )
            for node in quorum.nodes
        ],
    )


def read_quorum(client: WireClient) -> QuorumView:
    """Describe the controller quorum. Raises CommandFailure."""
    from penstock.cli.wire_client import check_error
    from penstock.client.view import QUORUM_REQUEST, quorum_of
    from penstock.model.errors import ApiError

    try:
        return quorum_of(client.ask(QUORUM_REQUEST))
    except ApiError as error:
        check_error(error.code, error.message, "cannot describe the quorum")
        raise


def ago(now_ms: int, then_ms: int | None) -> str | None:
    """How long ago, in readable form."""
    if then_ms is None:
        return None
    elapsed_s = max(0, now_ms - then_ms) / 1000
    if elapsed_s < 10:
        return f"{elapsed_s:.1f} s ago"
    return f"{elapsed_s:.0f} s ago" if elapsed_s < 120 else f"{elapsed_s / 60:.0f} min ago"
