"""`penstock cluster quorum`: the controllers and how far each has followed the metadata log."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from penstock.cli.failures import CommandFailure
from penstock.cli.options import Connection, connection_options, output_option
from penstock.cli.render import print_facts, print_json, print_table
from penstock.cli.style import StyledCommand

if TYPE_CHECKING:
    from penstock.cli.wire_client import WireClient

METADATA_TOPIC = "__cluster_metadata"


@dataclass(frozen=True, slots=True)
class QuorumNode:
    """A voter or an observer; lag counts records of the metadata log, times are milliseconds since 1970 or None."""

    node_id: int
    role: str
    directory_id: str
    log_end_offset: int
    lag: int
    last_fetch_ms: int | None
    last_caught_up_ms: int | None


@dataclass(frozen=True, slots=True)
class QuorumView:
    """The quorum as its leader sees it. `addresses` has what the leader tells of voters' listeners."""

    leader: int
    epoch: int
    high_watermark: int
    nodes: tuple[QuorumNode, ...]
    addresses: dict[int, str]

    @property
    def voters(self) -> tuple[QuorumNode, ...]:
        """Those that vote."""
        return tuple(node for node in self.nodes if node.role != "observer")


@click.command(cls=StyledCommand)
@connection_options
@output_option
def command(connection: Connection, as_json: bool) -> None:
    """Show the controllers, who leads them, and how far each is behind.

    Voters decide; observers, the brokers, follow. Lag is in records of the metadata log.
    """
    from penstock.cli.wire_client import WireClient

    with WireClient(connection) as client:
        quorum = read_quorum(client)
    if as_json:
        print_json(
            {
                "leader": quorum.leader,
                "epoch": quorum.epoch,
                "high_watermark": quorum.high_watermark,
                "nodes": [
                    {
                        "node_id": node.node_id,
                        "role": node.role,
                        "address": quorum.addresses.get(node.node_id),
                        "directory_id": node.directory_id,
                        "log_end_offset": node.log_end_offset,
                        "lag": node.lag,
                        "last_fetch_ms": node.last_fetch_ms,
                        "last_caught_up_ms": node.last_caught_up_ms,
                    }
                    for node in quorum.nodes
                ],
            }
        )
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
                quorum.addresses.get(node.node_id),
                node.log_end_offset,
                node.lag,
                ago(now_ms, node.last_fetch_ms),
                ago(now_ms, node.last_caught_up_ms),
            )
            for node in quorum.nodes
        ],
    )


def read_quorum(client: WireClient) -> QuorumView:
    """Ask the cluster about its controllers. Raises CommandFailure."""
    from penstock.cli.wire_client import check_error
    from penstock.model.ids import format_uuid
    from penstock.wire.messages.describe_quorum import (
        DescribeQuorumRequest,
        DescribeQuorumRequestPartitionData,
        DescribeQuorumRequestTopicData,
        DescribeQuorumResponse,
        ReplicaState,
    )

    request = DescribeQuorumRequest(
        [DescribeQuorumRequestTopicData(METADATA_TOPIC, [DescribeQuorumRequestPartitionData(0)])]
    )
    response: DescribeQuorumResponse = client.ask(request)
    what = "cannot describe the quorum"
    check_error(response.error_code, response.error_message, what)
    if not response.topics or not response.topics[0].partitions:
        raise CommandFailure(what, "the answer names no partition of the metadata log")
    partition = response.topics[0].partitions[0]
    check_error(partition.error_code, partition.error_message, what)
    end = max((node.log_end_offset for node in partition.current_voters), default=partition.high_watermark)

    def describe(state: ReplicaState, role: str) -> QuorumNode:
        return QuorumNode(
            state.replica_id,
            "leader" if state.replica_id == partition.leader_id else role,
            format_uuid(state.replica_directory_id),
            state.log_end_offset,
            max(0, end - state.log_end_offset),
            state.last_fetch_timestamp if state.last_fetch_timestamp > 0 else None,
            state.last_caught_up_timestamp if state.last_caught_up_timestamp > 0 else None,
        )

    nodes = [describe(state, "voter") for state in sorted(partition.current_voters)]
    nodes += [describe(state, "observer") for state in sorted(partition.observers)]
    addresses = {
        node.node_id: f"{node.listeners[0].host}:{node.listeners[0].port}" for node in response.nodes if node.listeners
    }
    return QuorumView(partition.leader_id, partition.leader_epoch, partition.high_watermark, tuple(nodes), addresses)


def ago(now_ms: int, then_ms: int | None) -> str | None:
    """How long ago, as people say it."""
    if then_ms is None:
        return None
    elapsed_s = max(0, now_ms - then_ms) / 1000
    if elapsed_s < 10:
        return f"{elapsed_s:.1f} s ago"
    return f"{elapsed_s:.0f} s ago" if elapsed_s < 120 else f"{elapsed_s / 60:.0f} min ago"
