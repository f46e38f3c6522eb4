"""Consumer groups through confluent-kafka's AdminClient. A failed call raises CommandFailure."""

from __future__ import annotations

import concurrent.futures
import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its __init__ has no __all__
    ConsumerGroupDescription,
    MemberDescription,
    OffsetSpec,
)

from penstock.cli.admin import Admin
from penstock.cli.client import explain
from penstock.cli.failures import CommandFailure
from penstock.cli.render import plural
from penstock.client.view import BrokerView

# How many groups are queried at the same time; each takes up to three requests.
GROUPS_IN_FLIGHT_MAX = 500

# Transient errors of a coordinator that has just taken over; Kafka's own tools retry too.
TRANSIENT_ERRORS = {"COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"}
RETRY_S = 0.2

# librdkafka's states with Kafka's names.
STATES: dict[Enum, str] = {
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.EMPTY: "Empty",
    ConsumerGroupState.DEAD: "Dead",
}
TYPES: dict[Enum, str] = {ConsumerGroupType.CLASSIC: "classic", ConsumerGroupType.CONSUMER: "consumer"}

STOP_MEMBERS = "stop its members (`penstock group describe {group}` shows them) and run this again"
ADVICE = {
    "GROUP_ID_NOT_FOUND": "`penstock group list` shows the groups",
    **dict.fromkeys(("NON_EMPTY_GROUP", "UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"), STOP_MEMBERS),
    **dict.fromkeys(("REBALANCE_IN_PROGRESS", "GROUP_SUBSCRIBED_TO_TOPIC"), STOP_MEMBERS),
    "GROUP_AUTHORIZATION_FAILED": "authenticate with -X sasl.username=… or ask for access to the group",
    "COORDINATOR_LOAD_IN_PROGRESS": "its coordinator is loading the offsets; try again in a moment",
    "COORDINATOR_NOT_AVAILABLE": "`penstock cluster info` shows partitions without a leader",
}

PartitionName = tuple[str, int]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a group and its assigned partitions, in order."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    assignment: tuple[PartitionName, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """A group as its coordinator describes it. `state` is None if librdkafka has no name for it."""

    group_id: str
    type: str | None
    state: str | None
    assignor: str = ""
    coordinator: BrokerView | None = None
    members: tuple[Member, ...] = ()


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A group's committed offset in a partition, and its metadata."""

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""


Committed = Mapping[PartitionName, CommittedOffset]


class GroupAdmin(Admin):
    """An admin client with consumer groups."""

    def groups(self) -> list[Group]:
        """Every consumer group by name, without members."""
        what = "cannot list the groups"

        def attempt() -> list[Group]:
            listed = self._result(self._client.list_consumer_groups(request_timeout=self._timeout_s), what)
            if listed.errors:
                error = listed.errors[0]
                raise explain(error, f"{what} of every broker") from KafkaException(error)
            return [Group(each.group_id, TYPES.get(each.type), STATES.get(each.state)) for each in listed.valid]

        return sorted(self._patiently(attempt), key=lambda group: group.group_id)

    def describe_groups(self, group_ids: Sequence[str]) -> dict[str, Group]:
        """Groups with their members; groups that do not exist are left out."""

        def attempt(some: list[str]) -> list[Group]:
            futures = self._client.describe_consumer_groups(some, request_timeout=self._timeout_s)
            return [
                _group(self._group_result(future, f"cannot describe group {group_id}", group_id))
                for group_id, future in futures.items()
            ]

        found: list[Group] = []
        for first in range(0, len(group_ids), GROUPS_IN_FLIGHT_MAX):
            some = list(group_ids[first : first + GROUPS_IN_FLIGHT_MAX])
            found += self._patiently(functools.partial(attempt, some))
        return {group.group_id: group for group in found if group.state != "Dead"}

    def describe_group(self, group_id: str) -> Group:
        """One group with its members; raises CommandFailure if it does not exist."""
        group = self.describe_groups([group_id]).get(group_id)
        if group is None:
            raise CommandFailure(f"there is no group {group_id}", advice=ADVICE["GROUP_ID_NOT_FOUND"])
        return group

    def committed(self, group_ids: Sequence[str]) -> dict[str, dict[PartitionName, CommittedOffset]]:
        """The committed offsets of groups, ordered by topic and partition."""

        def attempt(some: Sequence[str]) -> dict[str, dict[PartitionName, CommittedOffset]]:
            # librdkafka takes one group per call, so the calls are made concurrently.
            futures = {
                group_id: self._client.list_consumer_group_offsets(
                    [ConsumerGroupTopicPartitions(group_id)], request_timeout=self._timeout_s
                )[group_id]
                for group_id in some
            }
            return {
                group_id: _committed(
                    self._group_result(future, f"cannot read the offsets of group {group_id}", group_id)
                )
                for group_id, future in futures.items()
            }

        found: dict[str, dict[PartitionName, CommittedOffset]] = {}
        for first in range(0, len(group_ids), GROUPS_IN_FLIGHT_MAX):
            some = group_ids[first : first + GROUPS_IN_FLIGHT_MAX]
            found |= self._patiently(functools.partial(attempt, some))
        return found

    def commit(self, group_id: str, offsets: Committed) -> None:
        """Set the committed offsets of a group without members; creates the group if it does not exist."""
        what = f"cannot set the offsets of group {group_id}"
        wanted = [_topic_partition(name, committed) for name, committed in offsets.items()]

        def attempt() -> None:
            futures = self._client.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group_id, wanted)], request_timeout=self._timeout_s
            )
            result = self._group_result(futures[group_id], what, group_id)
            refused = [each for each in result.topic_partitions if each.error is not None]
            if refused:
                error = refused[0].error
                failure = explain(error, f"{what} in {refused[0].topic}-{refused[0].partition}")
                failure.why += f"; {len(wanted) - len(refused)} of {plural(len(wanted), 'partition')} set"
                raise _with_advice(failure, error.name(), group_id) from KafkaException(error)

        self._patiently(attempt)

    def delete_groups(self, group_ids: Sequence[str]) -> dict[str, CommandFailure | None]:
        """Delete groups with their offsets; None for each deleted one, the failure for each other."""
        futures = self._client.delete_consumer_groups(list(group_ids), request_timeout=self._timeout_s)
        results: dict[str, CommandFailure | None] = {}
        for group_id in group_ids:
            try:
                self._group_result(futures[group_id], f"cannot delete group {group_id}", group_id)
                results[group_id] = None
            except CommandFailure as failure:
                results[group_id] = failure
        return results

    def end_offsets(self, partitions: Iterable[PartitionName]) -> dict[PartitionName, int]:
        """The end offsets; partitions that are gone or have no leader are left out."""
        asked = set(partitions)
        if not asked:
            return {}
        online = {
            (topic.name, each.partition) for topic in self.topics() for each in topic.partitions if each.leader >= 0
        }
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        wanted = {TopicPartition(*name): latest for name in sorted(asked & online)}
        if not wanted:
            return {}
        futures = self._client.list_offsets(wanted, request_timeout=self._timeout_s)
        ends = {}
        for key, future in futures.items():
            try:
                ends[key.topic, key.partition] = self._result(future, f"cannot read the end of {key.topic}").offset
            except CommandFailure:
                # A partition may be deleted or lose its leader between the two requests; it is left out.
                continue
        return ends

    def _patiently(self, attempt: Callable[[], T]) -> T:
        """Retry while a coordinator is taking over, until the deadline."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return attempt()
            except CommandFailure as failure:
                if _error_name(failure) not in TRANSIENT_ERRORS or time.monotonic() >= deadline:
                    raise
            time.sleep(RETRY_S)

    def _group_result(self, future: concurrent.futures.Future[Any], what: str, group_id: str) -> Any:
        try:
            return self._result(future, what)
        except CommandFailure as failure:
            raise _with_advice(failure, _error_name(failure), group_id) from failure.__cause__


def _error_name(failure: CommandFailure) -> str:
    """The name of the Kafka error behind a failure; empty if there is none."""
    cause = failure.__cause__
    return str(cause.args[0].name()) if isinstance(cause, KafkaException) else ""


def _with_advice(failure: CommandFailure, error_name: str, group_id: str) -> CommandFailure:
    failure.advice = advice_for(error_name, group_id) or failure.advice
    return failure


def advice_for(error_name: str, group_id: str) -> str:
    """What to do about an error of a group's coordinator; empty if there is no advice."""
    return ADVICE.get(error_name, "").format(group=group_id)


def by_topic(partitions: Iterable[PartitionName]) -> dict[str, list[int]]:
    """Sorted partition numbers by topic."""
    topics = defaultdict(list)
    for topic, partition in sorted(partitions):
        topics[topic].append(partition)
    return dict(topics)


def in_order(members: Iterable[Member]) -> tuple[Member, ...]:
    """Members by their clients' names."""
    return tuple(sorted(members, key=lambda member: (member.client_id, member.member_id)))


def _group(description: ConsumerGroupDescription) -> Group:
    node = description.coordinator
    return Group(
        description.group_id,
        TYPES.get(description.type),
        STATES.get(description.state),
        description.partition_assignor or "",
        BrokerView(node.id, node.host, node.port, node.rack) if node is not None else None,
        in_order(map(_member, description.members)),
    )


def _member(member: MemberDescription) -> Member:
    assignment = member.assignment.topic_partitions if member.assignment is not None else []
    return Member(
        member.member_id,
        member.client_id,
        # Java writes an address without a name as "/127.0.0.1".
        member.host.lstrip("/"),
        member.group_instance_id,
        tuple(sorted((each.topic, each.partition) for each in assignment)),
    )


def _committed(result: ConsumerGroupTopicPartitions) -> dict[PartitionName, CommittedOffset]:
    found = {
        (each.topic, each.partition): CommittedOffset(each.offset, each.leader_epoch, each.metadata or "")
        for each in result.topic_partitions or ()
        if each.error is None and each.offset >= 0
    }
    return dict(sorted(found.items()))


def _topic_partition(name: PartitionName, committed: CommittedOffset) -> TopicPartition:
    topic, partition = name
    more: dict[str, Any] = {"metadata": committed.metadata} if committed.metadata else {}
    if committed.leader_epoch is not None:
        more["leader_epoch"] = committed.leader_epoch
    return TopicPartition(topic, partition, committed.offset, **more)
