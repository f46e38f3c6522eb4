"""Groups that librdkafka neither lists nor describes: asked of the brokers, and of their coordinators, directly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from penstock.cli.failures import CommandFailure
from penstock.client.cluster import ClusterClient
from penstock.client.failures import NoAnswer
from penstock.client.view import BrokerView, brokers_of
from penstock.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

GROUP_KEY = 0
# Whatever is wrong, librdkafka's requests will meet it, too, and say so.
UNANSWERED = (NoAnswer, CommandFailure)


def names_of(client: ClusterClient | None, kind: str) -> list[str]:
    """The names of all groups of a kind; without a client, or where brokers don't have such groups, there are none."""
    if client is None:
        return []
    try:
        cluster: DescribeClusterResponse = client.ask(DescribeClusterRequest())
        found: list[str] = []
        for broker in brokers_of(cluster).values():
            listed: ListGroupsResponse = client.ask_at(broker.address, ListGroupsRequest(types_filter=[kind]))
            found += [row.group_id for row in listed.groups if row.group_type == kind]
        return found
    except UNANSWERED:
        return []


def by_coordinator(client: ClusterClient, names: Sequence[str]) -> dict[BrokerView, list[str]]:
    """The groups by the broker that coordinates them; raises one of UNANSWERED."""
    found: FindCoordinatorResponse = client.ask(FindCoordinatorRequest("", GROUP_KEY, names))
    coordinated: dict[BrokerView, list[str]] = defaultdict(list)
    for row in found.coordinators:
        if not row.error_code:
            coordinated[BrokerView(row.node_id, row.host, row.port)].append(row.key)
    return coordinated
