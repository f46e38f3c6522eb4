"""`Admin`: topics, groups, access lists and the cluster itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its __init__ has no __all__
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic

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
from penstock.client.application.errors import PenstockError, TimedOut, TopicExists, UnknownTopic, explained, explaining
from penstock.client.application.group_offsets import read_group_positions

Partition = tuple[str, int]
T = TypeVar("T")

REQUEST_TIMEOUT_S = 30.0
# librdkafka's stubs leave these untyped.
EARLIEST: Any = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]


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
        self.connection = Connection.of(connection)
        self._timeout_s = timeout_s
        self._said = ""
        settings = self.connection.librdkafka() | {"error_cb": self._error} | dict(properties or {})
        with explaining("the administration client cannot start"):
            self._raw = AdminClient(settings)

    def close(self) -> None:
        """Close the connections; they are closed with the object too.

        >>> Admin().close()
        """
        self.__dict__.pop("_raw", None)

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
        wanted = NewTopic(name, partitions, replication_factor, config=dict(config or {}))
        try:
            self._one(f"the topic {name} cannot be created", self._raw.create_topics, [wanted])
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
        found = self._one(what, self._raw.describe_topics, TopicCollection([name]))
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        config = self._one(what, self._raw.describe_configs, [resource])
        partitions = tuple(
            PartitionDescription(
                each.id,
                each.leader.id if each.leader is not None else None,
                tuple(node.id for node in each.replicas),
                tuple(node.id for node in each.isr),
            )
            for each in found.partitions
        )
        return TopicDescription(
            name, str(found.topic_id), partitions, {key: entry.value for key, entry in config.items()}
        )

    def list_topics(self) -> list[str]:
        """The names of all topics but internal ones.

        >>> with Admin() as admin:
        ...     "orders" in admin.list_topics()
        True
        """
        found = self._call("topics cannot be listed", lambda s: self._raw.list_topics(timeout=s))
        return sorted(name for name in found.topics if not name.startswith("__"))

    def delete_topic(self, name: str, *, missing_ok: bool = False) -> bool:
        """Delete a topic. Raises UnknownTopic, or returns False with `missing_ok`.

        >>> with Admin() as admin:
        ...     admin.create_topic("short-lived")
        ...     admin.delete_topic("short-lived")
        True
        True
        """
        try:
            self._one(f"the topic {name} cannot be deleted", self._raw.delete_topics, [name])
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
        wanted = NewPartitions(name, total)
        self._one(f"{name} cannot get {total} partitions", self._raw.create_partitions, [wanted])

    def alter_topic(self, name: str, config: Mapping[str, str | None]) -> None:
        """Change some of a topic's settings; None takes the default again.

        >>> with Admin() as admin:
        ...     admin.alter_topic("orders", {"retention.ms": "3600000"})
        """
        self._alter(ConfigResource.Type.TOPIC, name, config)

    def alter_group(self, group: str, config: Mapping[str, str | None]) -> None:
        """Change some of a group's settings, such as those of a share group.

        >>> with Admin() as admin:
        ...     admin.alter_group("packers", {"share.auto.offset.reset": "earliest"})
        """
        self._alter(ConfigResource.Type.GROUP, group, config)

    def group_config(self, group: str) -> dict[str, str | None]:
        """A group's settings, its own and those it takes from the cluster.

        >>> with Admin() as admin:
        ...     admin.group_config("anybody")["share.auto.offset.reset"]
        'latest'
        """
        resource = ConfigResource(ConfigResource.Type.GROUP, group)
        found = self._one(f"the settings of {group} cannot be read", self._raw.describe_configs, [resource])
        return {key: entry.value for key, entry in found.items()}

    def offsets(self, topic: str, at: int | str = "latest") -> dict[Partition, int]:
        """Each partition's offset "earliest", "latest" (its end), or of the first record at or after a time in ms.

        >>> with Admin() as admin:
        ...     admin.offsets("orders", "earliest")[("orders", 0)]
        0
        """
        spec = OffsetSpec.for_timestamp(at) if isinstance(at, int) else {"earliest": EARLIEST, "latest": LATEST}[at]
        partitions = [TopicPartition(topic, each.partition) for each in self.describe_topic(topic).partitions]
        return self._offsets(dict.fromkeys(partitions, spec))

    def trim(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Delete the records before these offsets, by partition.

        >>> with Admin() as admin:
        ...     admin.create_topic("long-log", partitions=1)
        ...     admin.trim("long-log", {0: 0})
        True
        """
        wanted = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        self._all(f"{topic} cannot be trimmed", self._raw.delete_records, wanted)

    def list_groups(self) -> dict[str, str]:
        """The groups and their states.

        >>> with Admin() as admin:
        ...     isinstance(admin.list_groups(), dict)
        True
        """
        found = self._result("groups cannot be listed", self._raw.list_consumer_groups)
        if found.errors:
            raise explained(found.errors[0], "the groups of some brokers cannot be listed")
        return {each.group_id: each.state.name.lower() for each in found.valid}

    def describe_group(self, group: str) -> GroupDescription:
        """A group's state, and its members with their partitions.

        >>> with Admin() as admin:
        ...     admin.describe_group("nobody").members
        ()
        """
        what = f"the group {group} cannot be described"
        try:
            found = self._one(what, self._raw.describe_consumer_groups, [group])
        except PenstockError as error:
            if error.code != "GROUP_ID_NOT_FOUND":
                raise
            return GroupDescription(group, "dead", ())
        members = tuple(
            GroupMember(
                each.member_id,
                each.client_id,
                each.host,
                tuple((place.topic, place.partition) for place in each.assignment.topic_partitions),
            )
            for each in found.members
        )
        return GroupDescription(group, found.state.name.lower(), members)

    def group_offsets(self, group: str) -> dict[Partition, int]:
        """The offsets that a group has committed.

        >>> with Admin() as admin:
        ...     admin.group_offsets("nobody")
        {}
        """
        positions = read_group_positions(self.connection.wire(), group, self._timeout_s)
        return {place: offset for place, (offset, _) in positions.items()}

    def group_lag(self, group: str, topics: Iterable[str] = ()) -> dict[Partition, int]:
        """How many records the group has not committed, of partitions where it committed and of all of `topics`.

        >>> with Admin() as admin:
        ...     admin.group_lag("nobody", ["orders"])[("orders", 0)] > 0
        True
        """
        committed = self.group_offsets(group)
        partitions = set(committed)
        for topic in topics:
            partitions |= {(topic, each.partition) for each in self.describe_topic(topic).partitions}
        if not partitions:
            return {}
        places = [TopicPartition(*each) for each in sorted(partitions)]
        ends = self._offsets(dict.fromkeys(places, LATEST))
        missing = [place for place in places if (place.topic, place.partition) not in committed]
        starts = self._offsets(dict.fromkeys(missing, EARLIEST)) if missing else {}
        return {place: max(0, end - committed.get(place, starts.get(place, end))) for place, end in ends.items()}

    def set_group_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Let a group without members continue at these offsets.

        >>> with Admin() as admin:
        ...     admin.set_group_offsets("replay", {("orders", 0): 0})
        """
        places = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        wanted = ConsumerGroupTopicPartitions(group, places)
        self._one(f"the offsets of {group} cannot be changed", self._raw.alter_consumer_group_offsets, [wanted])

    def delete_group(self, group: str) -> None:
        """Delete a group without members, and its offsets.

        >>> with Admin() as admin:
        ...     admin.set_group_offsets("old", {("orders", 0): 0})
        ...     admin.delete_group("old")
        """
        self._one(f"the group {group} cannot be deleted", self._raw.delete_consumer_groups, [group])

    def describe_cluster(self) -> ClusterDescription:
        """The cluster's id, controller and brokers.

        >>> with Admin() as admin:
        ...     len(admin.describe_cluster().brokers)
        1
        """
        found = self._result("the cluster cannot be described", self._raw.describe_cluster)
        brokers = tuple(Broker(each.id, each.host, each.port, each.rack) for each in found.nodes)
        return ClusterDescription(found.cluster_id, found.controller.id if found.controller else None, brokers)

    @property
    def librdkafka(self) -> AdminClient:
        """librdkafka's client, for what is not here, such as delegation tokens.

        >>> Admin().librdkafka.list_topics(timeout=10).cluster_id is not None
        True
        """
        return self._raw

    def _alter(self, kind: Any, name: str, config: Mapping[str, str | None]) -> None:
        entries = [
            ConfigEntry(
                key,
                value,
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for key, value in config.items()
        ]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        self._one(f"the settings of {name} cannot be changed", self._raw.incremental_alter_configs, [resource])

    def _offsets(self, specs: Mapping[TopicPartition, OffsetSpec]) -> dict[Partition, int]:
        found = self._all("offsets cannot be read", self._raw.list_offsets, dict(specs))
        return {(place.topic, place.partition): each.offset for place, each in found.items()}

    def _one(self, what: str, ask: Callable[..., Mapping[Any, Future[T]]], *wanted: Any) -> T:
        (result,) = self._all(what, ask, *wanted).values()
        return result

    def _all(self, what: str, ask: Callable[..., Mapping[Any, Future[T]]], *wanted: Any) -> dict[Any, T]:
        futures = self._call(what, lambda s: ask(*wanted, request_timeout=s))
        return {name: self._call(what, future.result) for name, future in futures.items()}

    def _result(self, what: str, ask: Callable[..., Future[T]], *wanted: Any) -> T:
        return self._call(what, self._call(what, lambda s: ask(*wanted, request_timeout=s)).result)

    def _call(self, what: str, ask: Callable[[float], T]) -> T:
        try:
            return ask(self._timeout_s)
        except KafkaException as error:
            explanation = explained(error.args[0], what)
            if self._said and explanation.code in ("_TIMED_OUT", "_TRANSPORT"):
                explanation.why += f"; {self._said}"
            raise explanation from error
        except TimeoutError as error:
            raise TimedOut(what, self._said or "no answer in time", "try again") from error
        except ValueError as error:
            raise PenstockError(what, str(error)) from error

    def _error(self, error: Any) -> None:
        self._said = error.str()
