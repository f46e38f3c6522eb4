"""`Admin`: topics, groups, access lists and the cluster itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from penstock.client.application.access import AccessAdmin
from penstock.client.application.connection import Connection
from penstock.client.application.descriptions import (
    Broker,
    ClusterDescription,
    GroupDescription,
    GroupMember,
    PartitionDescription,
    TopicDescription,
)
from penstock.client.application.errors import TopicExists, UnknownTopic, explaining, explaining_wire
from penstock.client.cluster import ClusterClient
from penstock.client.operations import configs, groups
from penstock.client.operations import offsets as offset_operations
from penstock.client.operations import topics as topic_operations
from penstock.client.operations.groups import CommittedOffset, Group
from penstock.client.operations.offsets import EARLIEST, LATEST
from penstock.client.operations.routing import Cluster, Operation, Refused
from penstock.client.settings import ConnectionSettings, read_settings
from penstock.model.ids import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

Partition = tuple[str, int]
P = ParamSpec("P")
K = TypeVar("K")
T = TypeVar("T")

REQUEST_TIMEOUT_S = 30.0
ENDS = {"earliest": EARLIEST, "latest": LATEST}
# The names of states as applications know them, where they are not Kafka's in lower case.
STATES = {"PreparingRebalance": "preparing_rebalancing", "CompletingRebalance": "completing_rebalancing"}


class Admin(AccessAdmin):
    """Changes and describes a cluster. Safe to share between threads.

    >>> with Admin() as admin:
    ...     admin.create_topic("payments", partitions=3, replication_factor=1)
    ...     admin.describe_topic("payments").partition_count
    True
    3
    """

    def __init__(
        self,
        connection: Connection | str | None = None,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        # Each thread that waits for the cluster has a client of its own, which is kept for the next one.
        self._idle: deque[ClusterClient] = deque()
        self.connection = Connection.of(connection)
        self._timeout_s = timeout_s
        self._properties = dict(properties or {})
        self._raw: AdminClient | None = None
        with explaining_wire("the administration client cannot start"):
            self._settings = self._read_settings()

    def close(self) -> None:
        """Close the connections; they are closed with the object too.

        >>> Admin().close()
        """
        self._raw = None
        while self._idle:
            self._idle.pop().close()

    def __del__(self) -> None:
        self.close()

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        config: Mapping[str, str] | None = None,
        *,
        exist_ok: bool = False,
    ) -> bool:
        """Create a topic; -1 stands for the cluster's default. Raises TopicExists, or returns False with `exist_ok`.

        >>> with Admin() as admin:
        ...     admin.create_topic("events", partitions=2, config={"retention.ms": "86400000"})
        ...     admin.create_topic("events", partitions=2, exist_ok=True)
        True
        False
        """
        try:
            what = f"the topic {name} cannot be created"
            self._run(what, topic_operations.create_topic, name, partitions, replication_factor, config)
        except TopicExists:
            if exist_ok:
                return False
            raise
        return True

    def describe_topic(self, name: str) -> TopicDescription:
        """A topic's partitions, their leaders and replicas, and its settings. Raises UnknownTopic.

        >>> with Admin() as admin:
        ...     admin.describe_topic("orders").partitions[0].leader
        1
        """
        what = f"the topic {name} cannot be described"
        found = self._run(what, topic_operations.describe_topic, name)
        config = self._run(what, configs.read_configs, configs.TOPIC, name)
        partitions = tuple(
            PartitionDescription(
                each.partition, each.leader if each.leader >= 0 else None, each.replicas, each.in_sync_replicas
            )
            for each in found.partitions
        )
        return TopicDescription(name, found.topic_id, partitions, {each.name: each.value for each in config})

    def list_topics(self) -> list[str]:
        """The names of all topics but internal ones.

        >>> with Admin() as admin:
        ...     "orders" in admin.list_topics()
        True
        """
        found = self._run("topics cannot be listed", topic_operations.list_topics)
        return [topic.name for topic in found if not topic.is_hidden]

    def delete_topic(self, name: str, *, missing_ok: bool = False) -> bool:
        """Delete a topic. Raises UnknownTopic, or returns False with `missing_ok`.

        >>> with Admin() as admin:
        ...     admin.create_topic("short-lived")
        ...     admin.delete_topic("short-lived")
        True
        True
        """
        try:
            self._run(f"the topic {name} cannot be deleted", topic_operations.delete_topic, name)
        except UnknownTopic:
            if missing_ok:
                return False
            raise
        return True

    def add_partitions(self, name: str, total: int) -> None:
        """Let a topic have `total` partitions, more than it has.

        >>> with Admin() as admin:
        ...     admin.create_topic("growing", partitions=1)
        ...     admin.add_partitions("growing", 4)
        True
        """
        self._run(f"{name} cannot get {total} partitions", topic_operations.add_partitions, name, total)

    def alter_topic(self, name: str, config: Mapping[str, str | None]) -> None:
        """Change some of a topic's settings; None takes the default again.

        >>> with Admin() as admin:
        ...     admin.alter_topic("orders", {"retention.ms": "3600000"})
        """
        self._run(f"the settings of {name} cannot be changed", configs.alter_configs, configs.TOPIC, name, config)

    def alter_group(self, group: str, config: Mapping[str, str | None]) -> None:
        """Change some of a group's settings, such as those of a share group.

        >>> with Admin() as admin:
        ...     admin.alter_group("packers", {"share.auto.offset.reset": "earliest"})
        """
        self._run(f"the settings of {group} cannot be changed", configs.alter_configs, configs.GROUP, group, config)

    def group_config(self, group: str) -> dict[str, str | None]:
        """A group's settings, its own and those it takes from the cluster.

        >>> with Admin() as admin:
        ...     admin.group_config("anybody")["share.auto.offset.reset"]
        'latest'
        """
        found = self._run(f"the settings of {group} cannot be read", configs.read_configs, configs.GROUP, group)
        return {each.name: each.value for each in found}

    def offsets(self, topic: str, at: int | str = "latest") -> dict[Partition, int]:
        """Each partition's offset "earliest", "latest" (its end), or of the first record at or after a time in ms.

        >>> with Admin() as admin:
        ...     admin.offsets("orders", "earliest")[("orders", 0)]
        0
        """
        timestamp_ms = at if isinstance(at, int) else ENDS[at]
        return self._offsets(dict.fromkeys(self._partitions_of(topic), timestamp_ms))

    def trim(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Delete the records before these offsets, by partition.

        >>> with Admin() as admin:
        ...     admin.create_topic("long-log", partitions=1)
        ...     admin.trim("long-log", {0: 0})
        True
        """
        what = f"{topic} cannot be trimmed"
        wanted = {TopicPartition(topic, partition): offset for partition, offset in offsets.items()}
        self._unrefused(what, self._run(what, offset_operations.delete_records, wanted))

    def list_groups(self) -> dict[str, str]:
        """The groups and their states.

        >>> with Admin() as admin:
        ...     isinstance(admin.list_groups(), dict)
        True
        """
        found = self._run("groups cannot be listed", groups.list_groups)
        return {each.group_id: _state(each) for each in found if each.type not in (groups.SHARE, groups.STREAMS)}

    def describe_group(self, group: str) -> GroupDescription:
        """A group's state, and its members with their partitions.

        >>> with Admin() as admin:
        ...     admin.describe_group("absent").members
        ()
        """
        what = f"the group {group} cannot be described"
        found = self._unrefused(what, self._run(what, groups.describe_groups, [group])).get(group)
        if found is None:
            return GroupDescription(group, "dead", ())
        members = tuple(
            GroupMember(each.member_id, each.client_id, each.host, each.assignment) for each in found.members
        )
        return GroupDescription(group, _state(found), members)

    def group_offsets(self, group: str) -> dict[Partition, int]:
        """The offsets that a group has committed.

        >>> with Admin() as admin:
        ...     admin.group_offsets("absent")
        {}
        """
        return {place: each.offset for place, each in self._committed(group).items()}

    def group_lag(self, group: str, topics: Iterable[str] = ()) -> dict[Partition, int]:
        """How many records the group has not committed, of partitions where it committed and of all of `topics`.

        >>> with Admin() as admin:
        ...     admin.group_lag("absent", ["orders"])[("orders", 0)] > 0
        True
        """
        committed = self.group_offsets(group)
        partitions = {TopicPartition(*each) for each in committed}
        for topic in topics:
            partitions.update(self._partitions_of(topic))
        ends = self._offsets(dict.fromkeys(sorted(partitions), LATEST))
        starts = self._offsets(dict.fromkeys(sorted(partitions.difference(committed)), EARLIEST))
        return {place: max(0, end - committed.get(place, starts.get(place, end))) for place, end in ends.items()}

    def set_group_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Let a group without members continue at these offsets.

        >>> with Admin() as admin:
        ...     admin.set_group_offsets("replay", {("orders", 0): 0})
        """
        what = f"the offsets of {group} cannot be changed"
        wanted = {TopicPartition(*place): CommittedOffset(offset) for place, offset in offsets.items()}
        self._unrefused(what, self._run(what, groups.commit_offsets, group, wanted))

    def delete_group(self, group: str) -> None:
        """Delete a group without members, and its offsets.

        >>> with Admin() as admin:
        ...     admin.set_group_offsets("old", {("orders", 0): 0})
        ...     admin.delete_group("old")
        """
        what = f"the group {group} cannot be deleted"
        self._unrefused(what, self._run(what, groups.delete_groups, [group]))

    def describe_cluster(self) -> ClusterDescription:
        """The cluster's id, controller and brokers.

        >>> with Admin() as admin:
        ...     len(admin.describe_cluster().brokers)
        1
        """
        found = self._run("the cluster cannot be described", topic_operations.describe_cluster)
        brokers = tuple(Broker(each.node_id, each.host, each.port, each.rack) for each in found.brokers)
        return ClusterDescription(found.cluster_id or None, found.controller, brokers)

    @property
    def librdkafka(self) -> AdminClient:
        """librdkafka's client, for what is not here, such as delegation tokens.

        >>> Admin().librdkafka.list_topics(timeout=10).cluster_id is not None
        True
        """
        if self._raw is None:
            from confluent_kafka.admin import AdminClient

            with explaining("the administration client cannot start"):
                self._raw = AdminClient(self.connection.librdkafka() | self._properties)
        return self._raw

    def _partitions_of(self, topic: str) -> list[TopicPartition]:
        found = self._run(f"the topic {topic} cannot be described", topic_operations.describe_topic, topic)
        return [TopicPartition(topic, each.partition) for each in found.partitions]

    def _offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[Partition, int]:
        found = self._run("offsets cannot be read", offset_operations.positions, timestamps) if timestamps else {}
        return {place: each.offset for place, each in found.items()}

    def _committed(self, group: str) -> Mapping[TopicPartition, CommittedOffset]:
        what = f"the offsets of {group} cannot be read"
        return self._unrefused(what, self._run(what, groups.committed_offsets, [group]))[group]

    def _run(
        self,
        what: str,
        operation: Callable[Concatenate[Cluster, P], Operation[T]],
        /,
        *arguments: P.args,
        **named: P.kwargs,
    ) -> T:
        try:
            client = self._idle.pop()
        except IndexError:
            client = ClusterClient(self._settings, timeout_s=self._timeout_s, patience_s=self._timeout_s)
        try:
            with explaining_wire(what):
                return client.run(operation, *arguments, **named)
        finally:
            self._idle.append(client)

    def _unrefused(self, what: str, results: Mapping[K, T | Refused | None]) -> dict[K, T]:
        """The results without refusals; raises the first of those."""
        for each in results.values():
            if isinstance(each, Refused):
                with explaining_wire(what):
                    raise each
        return {key: each for key, each in results.items() if each is not None and not isinstance(each, Refused)}

    def _read_settings(self) -> ConnectionSettings:
        properties = self.connection.librdkafka() | self._properties
        return read_settings({name: str(value) for name, value in properties.items() if not callable(value)})


def _state(group: Group) -> str:
    return STATES.get(group.state or "", (group.state or "unknown").lower())
