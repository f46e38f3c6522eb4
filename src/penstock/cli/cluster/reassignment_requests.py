"""The requests of a reassignment: move, cancel, throttle, elect. Each raises CommandFailure if it is refused."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence

from penstock.cli.cluster.view import ClusterView
from penstock.cli.failures import CommandFailure
from penstock.cli.wire_client import WireClient, check_error, error_text
from penstock.client.failures import NoAnswer
from penstock.client.operations.routing import by_topic
from penstock.client.view import PartitionView
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from penstock.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

PARTITIONS_PER_REQUEST = 1000
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
SET, DELETE = 0, 1
# Set for this topic, for this broker, or cluster-wide, dynamically.
DYNAMIC_SOURCES = (1, 2, 3)
PREFERRED, UNCLEAN = 0, 1
LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"


def alter_reassignments(client: WireClient, targets: Mapping[TopicPartition, Sequence[int] | None]) -> list[str]:
    """Set the replicas of partitions, None to cancel; returns what was refused, one sentence each."""
    refused = []
    names = list(targets)
    for start in range(0, len(names), PARTITIONS_PER_REQUEST):
        chunk = names[start : start + PARTITIONS_PER_REQUEST]
        topics = [
            ReassignableTopic(topic, [ReassignablePartition(n, targets[TopicPartition(topic, n)]) for n in numbers])
            for topic, numbers in by_topic(chunk).items()
        ]
        response: AlterPartitionReassignmentsResponse = client.ask(AlterPartitionReassignmentsRequest(topics=topics))
        check_error(response.error_code, response.error_message, "the reassignment was refused")
        for topic in response.responses:
            refused += [
                f"{topic.name}-{partition.partition_index}: "
                + error_text(partition.error_code, partition.error_message)
                for partition in topic.partitions
                if partition.error_code not in (ErrorCode.NONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
            ]
    return refused


def set_throttle(
    client: WireClient, rate: int, view: ClusterView, targets: Mapping[TopicPartition, Sequence[int]]
) -> None:
    """Limit what moving these partitions may use of each broker, in bytes per second. Call it before they move."""
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    brokers: dict[int, None] = {}
    for name, replicas in targets.items():
        present = view.partitions[name].replicas
        arriving = [replica for replica in replicas if replica not in present]
        if name in view.ongoing:
            arriving += [replica for replica in view.ongoing[name].adding if replica not in arriving]
        leaders.setdefault(name.topic, []).extend(f"{name.partition}:{replica}" for replica in present)
        followers.setdefault(name.topic, []).extend(f"{name.partition}:{replica}" for replica in arriving)
        brokers |= dict.fromkeys((*present, *replicas))
    for broker in sorted(brokers):
        _alter_broker(client, view, broker, {LEADER_RATE: str(rate), FOLLOWER_RATE: str(rate)})
    _alter_topics(
        client,
        {
            topic: {LEADER_REPLICAS: ",".join(leaders[topic]), FOLLOWER_REPLICAS: ",".join(arriving)}
            for topic, arriving in followers.items()
        },
    )


def clear_throttle(client: WireClient, view: ClusterView, topics: Iterable[str]) -> None:
    """Remove every replication throttle from all brokers and from these topics."""
    for broker in view.brokers:
        _alter_broker(client, view, broker, dict.fromkeys((LEADER_RATE, FOLLOWER_RATE)))
    _alter_topics(client, {topic: dict.fromkeys((LEADER_REPLICAS, FOLLOWER_REPLICAS)) for topic in topics})


def throttled_topics(client: WireClient, view: ClusterView) -> list[str] | None:
    """The topics with throttled replicas while a broker has a limit; None if no broker has one."""
    limited = []
    for broker in view.alive():
        with contextlib.suppress(NoAnswer):
            request = _describe(BROKER_RESOURCE, [str(broker.node_id)])
            limited += _overrides(client.ask_at(broker.address, request))
    if not limited:
        return None
    topics = list(dict.fromkeys(name.topic for name in view.partitions))
    found = []
    for start in range(0, len(topics), PARTITIONS_PER_REQUEST):
        chunk = topics[start : start + PARTITIONS_PER_REQUEST]
        found += _overrides(client.ask(_describe(TOPIC_RESOURCE, chunk)))
    return found


def elect_leaders(
    client: WireClient, election: int, partitions: Sequence[TopicPartition]
) -> tuple[list[TopicPartition], list[str]]:
    """Elect PREFERRED or UNCLEAN leaders; returns the partitions that changed, and what was refused."""
    wanted = [TopicPartitions(topic, numbers) for topic, numbers in by_topic(partitions).items()]
    response: ElectLeadersResponse = client.ask(ElectLeadersRequest(election, wanted))
    check_error(response.error_code, None, "the election was refused")
    elected, refused = [], []
    for topic in response.replica_election_results:
        for result in topic.partition_result:
            name = TopicPartition(topic.topic, result.partition_id)
            if result.error_code == ErrorCode.NONE:
                elected.append(name)
            elif result.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                refused.append(f"{name}: {error_text(result.error_code, result.error_message)}")
    return elected, refused


def not_preferred(partitions: Mapping[TopicPartition, PartitionView]) -> list[TopicPartition]:
    """Partitions that are not led by their preferred leader."""
    return [
        name
        for name, partition in partitions.items()
        if partition.replicas and partition.leader != partition.replicas[0]
    ]


def refuse(refused: Sequence[str], what: str) -> None:
    """Raise CommandFailure with the first few of these sentences, if there are any."""
    if refused:
        more = f"; and {len(refused) - 5} more" if len(refused) > 5 else ""
        raise CommandFailure(f"{what} ({len(refused)} partitions)", "; ".join(refused[:5]) + more)


def _describe(kind: int, names: Sequence[str]) -> DescribeConfigsRequest:
    keys = (LEADER_RATE, FOLLOWER_RATE) if kind == BROKER_RESOURCE else (LEADER_REPLICAS, FOLLOWER_REPLICAS)
    return DescribeConfigsRequest([DescribeConfigsResource(kind, name, keys) for name in names])


def _overrides(response: DescribeConfigsResponse) -> list[str]:
    """The resources on which a requested setting is set."""
    return [
        result.resource_name
        for result in response.results
        if any(config.value and config.config_source in DYNAMIC_SOURCES for config in result.configs)
    ]


def _alter_broker(client: WireClient, view: ClusterView, broker: int, values: Mapping[str, str | None]) -> None:
    """Change the settings of one broker, which only that broker accepts. One that is down has no traffic to limit."""
    place = view.brokers.get(broker)
    if place is None or place.fenced:
        return
    request = IncrementalAlterConfigsRequest([config_change(BROKER_RESOURCE, str(broker), values)])
    try:
        _check_altered(client.ask_at(place.address, request))
    except NoAnswer as error:
        raise CommandFailure(
            f"the throttle of broker {broker} could not be changed", str(error), "run it again once the broker answers"
        ) from None


def _alter_topics(client: WireClient, changes: Mapping[str, Mapping[str, str | None]]) -> None:
    if changes:
        resources = [config_change(TOPIC_RESOURCE, topic, values) for topic, values in changes.items()]
        _check_altered(client.ask(IncrementalAlterConfigsRequest(resources)))


def config_change(kind: int, name: str, values: Mapping[str, str | None]) -> AlterConfigsResource:
    """Set these settings of a topic or broker; None resets one to its default."""
    configs = [AlterableConfig(key, DELETE if value is None else SET, value) for key, value in values.items()]
    return AlterConfigsResource(kind, name, configs)


def _check_altered(response: IncrementalAlterConfigsResponse) -> None:
    for result in response.responses:
        kind = "topic" if result.resource_type == TOPIC_RESOURCE else "broker"
        what = f"the throttle of {kind} {result.resource_name} could not be changed"
        check_error(result.error_code, result.error_message, what)
