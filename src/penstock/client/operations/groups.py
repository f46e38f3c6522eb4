"""Groups of every kind: listed, described and deleted, and the offsets that they have committed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.client.failures import NoAnswer, NotServed
from penstock.client.operations.routing import (
    COORDINATOR_MOVES,
    RETRIABLE,
    Cluster,
    Operation,
    Refused,
    ToAny,
    ToEach,
    TryAgain,
    at_coordinator,
    by_topic,
    check,
    find_coordinators,
    retried,
)
from penstock.client.view import BrokerView
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.model.ids import TopicPartition
from penstock.wire.frame import decode_versioned
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.wire.messages.consumer_protocol import ConsumerProtocolAssignment
from penstock.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)
from penstock.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from penstock.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from penstock.wire.messages.share_group_describe import ShareGroupDescribeRequest
from penstock.wire.messages.streams_group_describe import StreamsGroupDescribeRequest

CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"
# What a coordinator answers about a group of another kind, or where it has no groups of the kind.
OTHER_KIND = {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION}
DEAD = "Dead"
# The second is that of a group that has offsets and never had a member.
CONSUMER_PROTOCOLS = ("consumer", "")
TRANSIENT = RETRIABLE | COORDINATOR_MOVES | {ErrorCode.UNSTABLE_OFFSET_COMMIT}
COORDINATORS_TRANSIENT = COORDINATOR_MOVES | {ErrorCode.NETWORK_EXCEPTION}


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a group and its assigned partitions, in order."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    assignment: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """A group as its coordinator describes it. `type` is None where brokers do not name the types of groups."""

    group_id: str
    type: str | None
    state: str | None
    assignor: str = ""
    coordinator: BrokerView | None = None
    members: tuple[Member, ...] = ()
    # Whether it has offsets and never had a member.
    is_simple: bool = False


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A group's committed offset in a partition, and its metadata."""

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""


class ShareOffset(NamedTuple):
    """Where a share group starts in a partition, and how many records it has not finished; None for what is unknown."""

    start_offset: int | None
    lag: int | None


Committed = Mapping[TopicPartition, CommittedOffset]


@retried
def list_groups(cluster: Cluster) -> Operation[list[Group]]:
    """The groups of all kinds by name, without members. Raises Refused if a broker does not list its groups.

    Classic groups of other protocols than consumers', such as Kafka Connect's, are left out.
    """
    found, problems = yield from list_reachable_groups(cluster)
    for problem in problems:
        raise problem
    return found


def list_reachable_groups(cluster: Cluster) -> Operation[tuple[list[Group], list[Exception]]]:
    """The groups that brokers list now, and why groups of other brokers are missing: NoAnswer, TryAgain or Refused."""
    yield ToAny(MetadataRequest([]))
    answers: Mapping[object, ListGroupsResponse | NoAnswer]
    answers = yield ToEach(dict.fromkeys(cluster.brokers.values(), ListGroupsRequest()))
    found: list[Group] = []
    problems: list[Exception] = []
    for answer in answers.values():
        if isinstance(answer, NoAnswer):
            problems.append(answer)
            continue
        try:
            check(answer.error_code, "", None, TRANSIENT)
        except (TryAgain, Refused) as error:
            problems.append(error)
        found += [
            Group(row.group_id, row.group_type.lower() or None, row.group_state or None)
            for row in answer.groups
            if row.protocol_type in CONSUMER_PROTOCOLS or row.group_type.lower() in (SHARE, STREAMS)
        ]
    return sorted(found, key=lambda group: group.group_id), problems


@retried
def describe_groups(_: Cluster, names: Sequence[str]) -> Operation[dict[str, Group | Refused]]:
    """Groups of any kind with their members, or why one cannot be described; those that do not exist are left out."""
    if not names:
        return {}
    coordinated, refused = yield from find_coordinators(names)
    found: dict[str, Group | Refused] = {**refused}
    left = {broker: list(some) for broker, some in coordinated.items()}
    for kind in _KINDS:
        answers = yield ToEach({broker.address: kind.request_for(some) for broker, some in left.items() if some})
        for broker, some in left.items():
            answer = answers.get(broker.address)
            if answer is None or isinstance(answer, NotServed):
                continue
            for row in _answered(answer).groups:
                group = _described(row, kind, broker)
                if group is not None and row.group_id in some:
                    found[row.group_id] = group
                    some.remove(row.group_id)
    return found


@retried
def committed_offsets(
    _: Cluster, names: Sequence[str]
) -> Operation[dict[str, dict[TopicPartition, CommittedOffset] | Refused]]:
    """The committed offsets of groups, ordered by topic and partition; empty for a group that does not exist."""
    if not names:
        return {}
    coordinated, refused = yield from find_coordinators(names)
    found: dict[str, dict[TopicPartition, CommittedOffset] | Refused] = {**refused}
    requests = {
        broker.address: OffsetFetchRequest(groups=[OffsetFetchRequestGroup(name, None, -1, None) for name in some])
        for broker, some in coordinated.items()
    }
    answers = yield ToEach(requests)
    for answer in answers.values():
        response: OffsetFetchResponse = _answered(answer)
        for group in response.groups:
            try:
                check(group.error_code, group.group_id, None, TRANSIENT)
            except Refused as error:
                found[group.group_id] = error
                continue
            offsets = {
                TopicPartition(topic.name, row.partition_index): CommittedOffset(
                    row.committed_offset,
                    row.committed_leader_epoch if row.committed_leader_epoch >= 0 else None,
                    row.metadata or "",
                )
                for topic in group.topics
                for row in topic.partitions
                if not row.error_code and row.committed_offset >= 0
            }
            found[group.group_id] = dict(sorted(offsets.items()))
    return found


@retried
def commit_offsets(cluster: Cluster, name: str, offsets: Committed) -> Operation[dict[TopicPartition, Refused | None]]:
    """Set the committed offsets of a group without members; creates the group if it does not exist.

    None for each partition whose offset is set, the reason for each other.
    """
    topics: dict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
    for place, each in offsets.items():
        epoch = -1 if each.leader_epoch is None else each.leader_epoch
        topics[place[0]].append(OffsetCommitRequestPartition(place[1], each.offset, epoch, each.metadata))
    wanted = [OffsetCommitRequestTopic(topic, partitions=rows) for topic, rows in topics.items()]
    response: OffsetCommitResponse = yield from at_coordinator(cluster, name, OffsetCommitRequest(name, topics=wanted))
    rows = [
        (TopicPartition(topic.name, row.partition_index), row) for topic in response.topics for row in topic.partitions
    ]
    return {place: _refusal(row.error_code, place) for place, row in rows}


@retried
def delete_offsets(
    cluster: Cluster, name: str, partitions: Iterable[TopicPartition]
) -> Operation[dict[TopicPartition, Refused | None]]:
    """Delete committed offsets; None for each deleted one, the reason for each other. Raises Refused for a group."""
    wanted = [
        OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(number) for number in numbers])
        for topic, numbers in by_topic(partitions).items()
    ]
    response: OffsetDeleteResponse = yield from at_coordinator(cluster, name, OffsetDeleteRequest(name, wanted))
    check(response.error_code, name, None, COORDINATORS_TRANSIENT)
    rows = [
        (TopicPartition(topic.name, row.partition_index), row) for topic in response.topics for row in topic.partitions
    ]
    return {place: _refusal(row.error_code, place) for place, row in rows}


@retried
def delete_groups(_: Cluster, names: Sequence[str]) -> Operation[dict[str, Refused | None]]:
    """Delete groups with their offsets; None for each deleted one, the reason for each other."""
    if not names:
        return {}
    coordinated, refused = yield from find_coordinators(names)
    found: dict[str, Refused | None] = {**refused}
    answers = yield ToEach({broker.address: DeleteGroupsRequest(some) for broker, some in coordinated.items()})
    for answer in answers.values():
        response: DeleteGroupsResponse = _answered(answer)
        found |= {row.group_id: _refusal(row.error_code, row.group_id) for row in response.results}
    return found


@retried
def share_offsets(_: Cluster, groups: Iterable[Group]) -> Operation[dict[str, dict[TopicPartition, ShareOffset]]]:
    """Where share groups are in their partitions; groups whose coordinator does not answer are left out."""
    coordinated: dict[BrokerView, list[str]] = defaultdict(list)
    for group in groups:
        if group.coordinator is not None:
            coordinated[group.coordinator].append(group.group_id)
    requests = {
        broker.address: DescribeShareGroupOffsetsRequest(
            [DescribeShareGroupOffsetsRequestGroup(name, None) for name in some]
        )
        for broker, some in coordinated.items()
    }
    answers: Mapping[object, DescribeShareGroupOffsetsResponse | NoAnswer] = yield ToEach(requests)
    return {
        row.group_id: _share_offsets(row)
        for answer in answers.values()
        if not isinstance(answer, NoAnswer)
        for row in answer.groups
    }


def _share_offsets(group: DescribeShareGroupOffsetsResponseGroup) -> dict[TopicPartition, ShareOffset]:
    return {
        TopicPartition(topic.topic_name, row.partition_index): ShareOffset(
            row.start_offset if row.start_offset >= 0 else None, row.lag if row.lag >= 0 else None
        )
        for topic in group.topics
        for row in topic.partitions
        if not row.error_code
    }


class _Kind(NamedTuple):
    """How coordinators describe groups of a kind."""

    name: str
    request_for: Callable[[Sequence[str]], object]
    assignor_of: Callable[[Any], str]
    # Given a group, the function that reads the partitions of one of its members.
    assignments_of: Callable[[Any], Callable[[object], Iterable[tuple[str, int]]]]


def _described(row: Any, kind: _Kind, coordinator: BrokerView) -> Group | Refused | None:
    """A row of a response; None if the group is not of this kind, or does not exist."""
    if row.error_code in OTHER_KIND or (not row.error_code and row.group_state == DEAD):
        return None
    try:
        check(row.error_code, row.group_id, row.error_message, TRANSIENT)
    except Refused as error:
        return error
    assigned = kind.assignments_of(row)
    members = [
        Member(
            member.member_id,
            member.client_id,
            # Java writes an address without a name as "/127.0.0.1".
            member.client_host.lstrip("/"),
            getattr(member, "group_instance_id", None) or getattr(member, "instance_id", None),
            tuple(sorted(TopicPartition(*each) for each in assigned(member))),
        )
        for member in row.members
    ]
    members.sort(key=lambda member: (member.client_id, member.member_id))
    is_simple = getattr(row, "protocol_type", None) == ""
    assignor = kind.assignor_of(row)
    return Group(row.group_id, kind.name, row.group_state, assignor, coordinator, tuple(members), is_simple)


def _classic_assignments(group: Any) -> Callable[[object], Iterable[tuple[str, int]]]:
    def assigned(member: Any) -> list[tuple[str, int]]:
        if group.protocol_type != "consumer" or not member.member_assignment:
            return []
        try:
            found: ConsumerProtocolAssignment = decode_versioned(ConsumerProtocolAssignment, member.member_assignment)
        except ProtocolError:
            # The members' metadata may be in any format.
            return []
        return [(topic.topic, number) for topic in found.assigned_partitions for number in topic.partitions]

    return assigned


def _modern_assignments(_: Any) -> Callable[[Any], Iterable[tuple[str, int]]]:
    return lambda member: [
        (topic.topic_name, number) for topic in member.assignment.topic_partitions for number in topic.partitions
    ]


def _streams_assignments(group: Any) -> Callable[[Any], Iterable[tuple[str, int]]]:
    sources: dict[str, list[str]] = {}
    for each in (group.topology.subtopologies or ()) if group.topology is not None else ():
        repartitions = [topic.name for topic in each.repartition_source_topics]
        sources[each.subtopology_id] = [*each.source_topics, *repartitions]
    return lambda member: [
        (topic, number)
        for task in member.assignment.active_tasks
        for topic in sources.get(task.subtopology_id, ())
        for number in task.partitions
    ]


_KINDS = (
    _Kind(CLASSIC, DescribeGroupsRequest, lambda row: row.protocol_data, _classic_assignments),
    _Kind(CONSUMER, ConsumerGroupDescribeRequest, lambda row: row.assignor_name, _modern_assignments),
    _Kind(SHARE, ShareGroupDescribeRequest, lambda row: row.assignor_name, _modern_assignments),
    _Kind(STREAMS, StreamsGroupDescribeRequest, lambda _: "sticky", _streams_assignments),
)


def _answered(answer: object) -> Any:
    if isinstance(answer, NoAnswer):
        raise answer
    return answer


def _refusal(code: int, subject: object) -> Refused | None:
    """The refusal in a row of a response. Raises TryAgain while a coordinator is taking over."""
    try:
        check(code, str(subject), None, COORDINATORS_TRANSIENT)
    except Refused as error:
        return error
    return None
