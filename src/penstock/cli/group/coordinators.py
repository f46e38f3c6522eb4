"""Groups that librdkafka neither lists nor describes: asked of the brokers, and of their coordinators, directly."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from typing import Generic, TypeVar

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

Described = TypeVar("Described")


class GroupSource(ABC, Generic[Described]):
    """Finds the groups of a kind; without a client, or where brokers don't have such groups, there are none."""

    kind: str

    def __init__(self, client: ClusterClient | None) -> None:
        self._client = client

    def names(self) -> list[str]:
        """The names of all groups of the kind, which librdkafka leaves out of its list."""
        if self._client is None:
            return []
        request = ListGroupsRequest(types_filter=[self.kind])
        try:
            cluster: DescribeClusterResponse = self._client.ask(DescribeClusterRequest())
            found: list[str] = []
            for broker in brokers_of(cluster).values():
                listed: ListGroupsResponse = self._client.ask_at(broker.address, request)
                found += [row.group_id for row in listed.groups if row.group_type == self.kind]
            return found
        except UNANSWERED:
            return []

    def describe(self, names: Sequence[str]) -> dict[str, Described]:
        """Those of the groups that are of the kind."""
        groups: dict[str, Described] = {}
        if self._client is None or not names:
            return groups
        try:
            for broker, some in by_coordinator(self._client, names).items():
                groups |= self._describe_at(self._client, broker, some)
        except UNANSWERED:
            return {}
        return groups

    @abstractmethod
    def _describe_at(self, client: ClusterClient, broker: BrokerView, names: Sequence[str]) -> dict[str, Described]:
        """Those of the groups of one coordinator that are of the kind; raises one of UNANSWERED."""


def by_coordinator(client: ClusterClient, names: Sequence[str]) -> dict[BrokerView, list[str]]:
    """The groups by the broker that coordinates them; raises one of UNANSWERED."""
    found: FindCoordinatorResponse = client.ask(FindCoordinatorRequest("", GROUP_KEY, names))
    coordinated: dict[BrokerView, list[str]] = defaultdict(list)
    for row in found.coordinators:
        if not row.error_code:
            coordinated[BrokerView(row.node_id, row.host, row.port)].append(row.key)
    return coordinated
