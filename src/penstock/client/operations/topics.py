"""Topics: listed, described, created, grown and deleted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.client.operations.routing import (
    NOT_MADE,
    RETRIABLE,
    Cluster,
    Operation,
    Refused,
    ToAny,
    check,
    metadata_of,
    retried,
    to_controller,
)
from penstock.client.view import BrokerView
from penstock.model.access import Operation as AccessOperation
from penstock.model.errors import ErrorCode
from penstock.model.ids import Uuid, format_uuid
from penstock.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from penstock.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from penstock.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic

# How long the controller may take for a change.
CHANGE_TIMEOUT_MS = 15_000
DEFAULT = -1


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition's leader and replicas; leader -1 means that it has none."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic and its partitions in order."""

    name: str
    partitions: tuple[Partition, ...]
    internal: bool
    topic_id: str = ""
    # What the client may do with it; None unless this was requested.
    operations: tuple[AccessOperation, ...] | None = None

    @property
    def is_hidden(self) -> bool:
        """Whether lists of topics leave it out, as those that start with `__`."""
        return self.name.startswith("__")

    @property
    def replication_factor(self) -> int:
        """The replicas of the first partition."""
        return len(self.partitions[0].replicas) if self.partitions else 0


@dataclass(frozen=True, slots=True)
class ClusterBrokers:
    """A cluster's id, its controller, and the brokers that are up, ordered by id."""

    cluster_id: str
    controller: int | None
    brokers: tuple[BrokerView, ...]


@retried
def describe_cluster(_: Cluster) -> Operation[ClusterBrokers]:
    """The cluster's id, controller and brokers."""
    response: MetadataResponse = yield ToAny(MetadataRequest([]))
    brokers = tuple(BrokerView(each.node_id, each.host, each.port, each.rack) for each in sorted(response.brokers))
    controller = response.controller_id if response.controller_id >= 0 else None
    return ClusterBrokers(response.cluster_id or "", controller, brokers)


@retried
def list_topics(_: Cluster) -> Operation[list[Topic]]:
    """All topics by name."""
    response: MetadataResponse = yield ToAny(MetadataRequest(None, False))
    listed = [_topic(each) for each in response.topics if each.error_code in (0, ErrorCode.LEADER_NOT_AVAILABLE)]
    return sorted(listed, key=lambda topic: topic.name)


@retried
def describe_topics(
    _: Cluster, names: Iterable[str], *, with_operations: bool = False
) -> Operation[dict[str, Topic | Refused]]:
    """These topics by name, or why one cannot be described; creates none."""
    request = metadata_of(names)._replace(include_topic_authorized_operations=with_operations)
    response: MetadataResponse = yield ToAny(request)
    found: dict[str, Topic | Refused] = {}
    for each in response.topics:
        try:
            # A topic that was just created may have partitions that have no leader yet.
            check(each.error_code, each.name or "", None, RETRIABLE - {ErrorCode.LEADER_NOT_AVAILABLE})
        except Refused as error:
            found[each.name or ""] = error
        else:
            found[each.name or ""] = _topic(each)
    return found


def describe_topic(cluster: Cluster, name: str) -> Operation[Topic]:
    """One topic."""
    found = (yield from describe_topics(cluster, [name]))[name]
    if isinstance(found, Refused):
        raise found
    return found


@retried
def topic_ids(_: Cluster, names: Iterable[str]) -> Operation[tuple[str, dict[str, Uuid]]]:
    """The cluster's id, and those of the topics that exist."""
    response: MetadataResponse = yield ToAny(metadata_of(names))
    return response.cluster_id or "", {
        each.name or "": each.topic_id for each in response.topics if not each.error_code
    }


@retried
def create_topic(
    cluster: Cluster,
    name: str,
    partitions: int = DEFAULT,
    replication_factor: int = DEFAULT,
    configs: Mapping[str, str | None] | None = None,
    *,
    validate_only: bool = False,
    transient: frozenset[ErrorCode] = NOT_MADE,
) -> Operation[None]:
    """Create a topic; -1 stands for the cluster's default. Errors in `transient` are retried."""
    wanted = [CreatableTopicConfig(*each) for each in (configs or {}).items()]
    topic = CreatableTopic(name, partitions, replication_factor, (), wanted)
    request = CreateTopicsRequest([topic], CHANGE_TIMEOUT_MS, validate_only)

    def is_refused(response: CreateTopicsResponse) -> bool:
        return response.topics[0].error_code == ErrorCode.NOT_CONTROLLER

    response: CreateTopicsResponse = yield from to_controller(cluster, request, is_refused)
    (result,) = response.topics
    check(result.error_code, name, result.error_message, transient)


def ensure_topic(
    cluster: Cluster,
    name: str,
    partitions: int = DEFAULT,
    replication_factor: int = DEFAULT,
    configs: Mapping[str, str | None] | None = None,
) -> Operation[bool]:
    """Create a topic unless it exists; True if it was created."""
    try:
        yield from create_topic(cluster, name, partitions, replication_factor, configs, transient=RETRIABLE)
    except Refused as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
        return False
    return True


@retried
def delete_topics(cluster: Cluster, names: Iterable[str]) -> Operation[dict[str, Refused | None]]:
    """Delete topics and their records; None for each deleted one, the reason for each other."""
    wanted = list(names)
    request = DeleteTopicsRequest([DeleteTopicState(each) for each in wanted], wanted, CHANGE_TIMEOUT_MS)

    def is_refused(response: DeleteTopicsResponse) -> bool:
        return any(each.error_code == ErrorCode.NOT_CONTROLLER for each in response.responses)

    response: DeleteTopicsResponse = yield from to_controller(cluster, request, is_refused)
    return {
        each.name or "": Refused(each.error_code, each.name or "", each.error_message) if each.error_code else None
        for each in response.responses
    }


def delete_topic(cluster: Cluster, name: str) -> Operation[None]:
    """Delete one topic."""
    refused = (yield from delete_topics(cluster, [name]))[name]
    if refused is not None:
        raise refused


@retried
def add_partitions(cluster: Cluster, name: str, total: int) -> Operation[None]:
    """Increase a topic's partition count to `total`."""
    request = CreatePartitionsRequest([CreatePartitionsTopic(name, total, None)], CHANGE_TIMEOUT_MS)

    def is_refused(response: CreatePartitionsResponse) -> bool:
        return response.results[0].error_code == ErrorCode.NOT_CONTROLLER

    response: CreatePartitionsResponse = yield from to_controller(cluster, request, is_refused)
    (result,) = response.results
    check(result.error_code, name, result.error_message, NOT_MADE)


def _topic(topic: MetadataResponseTopic) -> Topic:
    partitions = tuple(
        Partition(each.partition_index, each.leader_id, tuple(each.replica_nodes), tuple(each.isr_nodes))
        for each in sorted(topic.partitions, key=lambda each: each.partition_index)
    )
    name = topic.name or ""
    return Topic(
        name, partitions, topic.is_internal, format_uuid(topic.topic_id), _operations(topic.topic_authorized_operations)
    )


def _operations(bits: int) -> tuple[AccessOperation, ...] | None:
    return None if bits < 0 else tuple(each for each in AccessOperation if bits >> each & 1)
