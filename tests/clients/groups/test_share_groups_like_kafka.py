"""The same requests about a share group to Penstock and to Apache Kafka: the answers are the same, one by one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.model.errors import ErrorCode
from penstock.testing import Cluster
from penstock.wire.messages import alter_share_group_offsets as altering
from penstock.wire.messages import consumer_group_heartbeat as consuming
from penstock.wire.messages import delete_share_group_offsets as deleting
from penstock.wire.messages import describe_share_group_offsets as describing
from penstock.wire.messages import join_group as joining
from penstock.wire.messages import offset_commit as committing
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.share_group_describe import ShareGroupDescribeRequest
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from support.kafka_broker import free_port, kafka_broker
from support.kafka_tools import java_missing, libraries_of
from support.wire_client import WireClient, batch_of

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

VERSION = "4.3.1"
GROUP, TOPIC, ABSENT = "sharers", "shared", "absent"
PATIENCE_S = 60.0
PASSING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
)
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.share.max.size": "2",
}


@contextmanager
def kafka(path: Path) -> Iterator[str]:
    port = free_port()
    with kafka_broker(path, SETTINGS, port=port, libraries=libraries_of(VERSION)) as broker:
        yield broker.address


class Story:
    """What happens to a group, with the answers in words."""

    def __init__(self, wire: WireClient) -> None:
        self._wire = wire
        self.told: list[str] = []
        self._epochs: dict[str, int] = {}

    def prepare(self) -> None:
        created = self._wire.call(CreateTopicsRequest([CreatableTopic(TOPIC, 2, 1)], 10_000), 7)
        assert not created.topics[0].error_code
        self._patiently(lambda: self._wire.produce(TOPIC, batch_of([b"a", b"b", b"c"])).error_code)
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
        self._patiently(lambda: self._wire.call(find, 6).coordinators[0].error_code)
        describe = ShareGroupDescribeRequest(["nobody"])
        self._patiently(lambda: self._wire.call(describe, 1).groups[0].error_code)

    def _patiently(self, error: Any) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while error() in PASSING:
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def beat(self, member: str, epoch: int | None = None, *topics: str, group: str = GROUP) -> Any:
        sent = self._epochs.get(member, 0) if epoch is None else epoch
        request = ShareGroupHeartbeatRequest(group, member, sent, None, topics or None)
        response = self._wire.call(request, 1)
        if not response.error_code:
            self._epochs[member] = response.member_epoch
        return response

    def tell_beat(self, member: str, epoch: int | None = None, *topics: str, group: str = GROUP) -> None:
        response = self.beat(member, epoch, *topics, group=group)
        has = "-"
        if response.assignment is not None:
            # Which ones is up to the assignor.
            has = str(sum(len(row.partitions) for row in response.assignment.topic_partitions))
        self._tell(f"{member} {epoch}", response.error_code, response.member_epoch, has)

    def until_assigned(self, member: str) -> None:
        """Beat until what is initialized is assigned; how often that takes is not part of the story."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            response = self.beat(member)
            if response.assignment is not None and response.assignment.topic_partitions:
                break
            assert time.monotonic() < deadline
            time.sleep(0.1)
        # Kafka waits between two assignments, so that the next one comes at once.
        time.sleep(1.5)
        rows = sorted(number for row in response.assignment.topic_partitions for number in row.partitions)
        self._tell(f"{member} is assigned", 0, response.member_epoch, rows)

    def settle(self, member: str) -> None:
        """Beat until the member is in the group's epoch."""
        time.sleep(1.5)
        self.beat(member)
        self.tell_group()

    def tell_group(self, group: str = GROUP, *, is_founded_again: bool = False) -> None:
        (found,) = self._wire.call(ShareGroupDescribeRequest([group], True), 1).groups
        members = sorted(
            (row.member_id, row.member_epoch, sorted(row.subscribed_topic_names), len(row.assignment.topic_partitions))
            for row in found.members
        )
        shares = sorted(
            sum(len(topic.partitions) for topic in row.assignment.topic_partitions) for row in found.members
        )
        # Penstock begins in a higher epoch than Kafka: late requests about a deleted group's state are told by it.
        epochs = (found.group_epoch, found.assignment_epoch) if not is_founded_again else found.assignment_epoch
        self._tell("group", found.error_code, found.group_state, found.assignor_name, epochs, members, shares)

    def tell_offsets(self, topics: list[str] | None = None) -> None:
        rows = None
        if topics is not None:
            rows = [describing.DescribeShareGroupOffsetsRequestTopic(name, [0, 1]) for name in topics]
        request = describing.DescribeShareGroupOffsetsRequest(
            [describing.DescribeShareGroupOffsetsRequestGroup(GROUP, rows)]
        )
        (found,) = self._wire.call(request, 1).groups
        told = sorted(
            (topic.topic_name, any(topic.topic_id), row.partition_index, row.start_offset, row.error_code)
            for topic in found.topics
            for row in topic.partitions
        )
        self._tell("offsets", found.error_code, told)

    def alter(self, *offsets: tuple[str, int, int]) -> None:
        rows = [
            altering.AlterShareGroupOffsetsRequestTopic(
                name, [altering.AlterShareGroupOffsetsRequestPartition(number, offset)]
            )
            for name, number, offset in offsets
        ]
        response = self._wire.call(altering.AlterShareGroupOffsetsRequest(GROUP, rows), 0)
        told = sorted((topic.topic_name, row.error_code) for topic in response.responses for row in topic.partitions)
        self._tell("alter", response.error_code, told)

    def forget(self, *names: str, group: str = GROUP) -> None:
        topics = [deleting.DeleteShareGroupOffsetsRequestTopic(name) for name in names]
        response = self._wire.call(deleting.DeleteShareGroupOffsetsRequest(group, topics), 0)
        self._tell(
            "forget", response.error_code, sorted((row.topic_name, row.error_code) for row in response.responses)
        )

    def delete(self, group: str = GROUP) -> None:
        (row,) = self._wire.call(DeleteGroupsRequest([group]), 2).results
        self._tell("delete", row.error_code)

    def others(self) -> None:
        """Requests of other kinds of groups."""
        protocol = joining.JoinGroupRequestProtocol("range", b"")
        request = joining.JoinGroupRequest(GROUP, 10_000, 10_000, "", None, "consumer", [protocol])
        self._tell("join", self._wire.call(request, 3).error_code)
        beat = consuming.ConsumerGroupHeartbeatRequest(GROUP, "m", 0, None, None, 10_000, [TOPIC], None, None, [])
        self._tell("consumer", self._wire.call(beat, 1).error_code)
        topics = [
            committing.OffsetCommitRequestTopic(TOPIC, partitions=[committing.OffsetCommitRequestPartition(0, 1)])
        ]
        response = self._wire.call(committing.OffsetCommitRequest(GROUP, -1, "", topics=topics), 8)
        self._tell("commit", response.topics[0].partitions[0].error_code)
        (described,) = self._wire.call(DescribeGroupsRequest([GROUP]), 6).groups
        self._tell("described", described.error_code, described.group_state)

    def listed(self) -> None:
        rows = self._wire.call(ListGroupsRequest(types_filter=["share"]), 5).groups
        self._tell("listed", sorted((row.group_id, row.protocol_type, row.group_state, row.group_type) for row in rows))

    def _tell(self, what: str, *more: Any) -> None:
        self.told.append(f"{what}: {' '.join(str(int(one) if isinstance(one, ErrorCode) else one) for one in more)}")


def play(address: str) -> list[str]:
    with WireClient(address) as wire:
        story = Story(wire)
        story.prepare()
        story.tell_beat("a", 3)
        story.tell_beat("a", -1)
        story.tell_beat("a", 0)
        story.tell_beat("a", -2)
        story.tell_beat("x" * 37, 0, TOPIC)
        story.tell_beat("", 0, TOPIC)
        story.tell_beat("a", 0, TOPIC)
        story.until_assigned("a")
        story.tell_group()
        story.tell_beat("a")
        story.tell_beat("a", 99)
        story.tell_beat("nobody", 1)
        story.tell_beat("b", 0, TOPIC, ABSENT)
        story.settle("b")
        story.settle("a")
        story.tell_beat("c", 0, TOPIC)
        story.others()
        story.listed()
        story.alter((TOPIC, 0, 1))
        story.forget(TOPIC)
        story.delete()
        story.tell_beat("b", -1)
        story.tell_beat("b", -1)
        story.settle("a")
        story.tell_beat("a", -1)
        story.tell_group()
        story.others()
        story.listed()
        story.alter((TOPIC, 0, 1), (ABSENT, 0, 1))
        story.tell_offsets()
        story.tell_offsets([TOPIC, ABSENT])
        story.forget(TOPIC, ABSENT)
        story.forget(TOPIC)
        story.tell_offsets()
        story.delete()
        story.delete()
        story.tell_group()
        story.forget(TOPIC)
        story.alter((TOPIC, 1, 0), (TOPIC, 7, 0))
        story.listed()
        story.tell_group(is_founded_again=True)
        story.tell_offsets()
        return story.told


def test_every_answer_about_a_share_group_is_that_of_kafka(tmp_path: Path) -> None:
    reason = java_missing(VERSION)
    if reason is not None:
        pytest.skip(reason)
    with kafka(tmp_path / "kafka") as address:
        expected = play(address)
    with Cluster(SETTINGS) as cluster:
        told = play(cluster.bootstrap_servers)
    different = [
        f"{theirs} is Kafka's, {ours} ours" for theirs, ours in zip(expected, told, strict=True) if theirs != ours
    ]
    assert not different, "\n".join(different)
