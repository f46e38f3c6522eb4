"""The same requests about a streams group to Penstock and to Apache Kafka: the answers are the same, one by one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.model.errors import ErrorCode
from penstock.testing import Cluster
from penstock.wire.messages import consumer_group_heartbeat as consuming
from penstock.wire.messages import join_group as joining
from penstock.wire.messages import offset_commit as committing
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from penstock.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from penstock.wire.messages.streams_group_heartbeat import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)
from support.kafka_broker import free_port, kafka_broker
from support.kafka_tools import java_missing, libraries_of
from support.wire_client import WireClient

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

VERSION = "4.3.1"
GROUP, TOPIC, LATER = "app", "lines", "later"
PATIENCE_S = 60.0
MISSING_SOURCE_TOPICS = 1
PASSING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "group.streams.max.size": "3",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.heartbeat.interval.ms": "6000",
}
CHANGELOG = TopicInfo("app-counts-changelog", 0, 0, [KeyValue("cleanup.policy", "compact")])
COUNTS = [
    Subtopology("0", [TOPIC], repartition_sink_topics=["app-words-repartition"]),
    Subtopology(
        "1", state_changelog_topics=[CHANGELOG], repartition_source_topics=[TopicInfo("app-words-repartition")]
    ),
]


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
        self._owned: dict[str, tuple[Any, Any]] = {}

    def prepare(self) -> None:
        created = self._wire.call(CreateTopicsRequest([CreatableTopic(TOPIC, 3, 1)], 10_000), 7)
        assert not created.topics[0].error_code
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
        self._patiently(lambda: self._wire.call(find, 6).coordinators[0].error_code)
        describe = StreamsGroupDescribeRequest(["nobody"])
        self._patiently(lambda: self._wire.call(describe, 0).groups[0].error_code)

    def _patiently(self, error: Any) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while error() in PASSING:
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def _tell(self, *words: Any) -> None:
        self.told.append(" ".join(map(str, words)))

    def join(self, member: str, rows: list[Subtopology], group: str = GROUP, epoch: int = 0, **fields: Any) -> None:
        request = StreamsGroupHeartbeatRequest(
            group,
            member,
            0,
            rebalance_timeout_ms=60_000,
            topology=Topology(epoch, rows),
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            process_id=fields.pop("process", member),
            client_tags=[KeyValue("zone", "a")],
        )
        self.send(f"{member} joins", request._replace(**fields))

    def beat(self, member: str, **fields: Any) -> Any:
        active, standby = self._owned.get(member, ([], []))
        request = StreamsGroupHeartbeatRequest(
            GROUP,
            member,
            self._epochs.get(member, 0),
            active_tasks=active,
            standby_tasks=standby,
            warmup_tasks=[],
        )
        return self.send(f"{member} beats", request._replace(**fields))

    def leave(self, member: str) -> None:
        self.send(f"{member} leaves", StreamsGroupHeartbeatRequest(GROUP, member, -1))

    def send(self, what: str, request: StreamsGroupHeartbeatRequest) -> Any:
        response = self._wire.call(request, 0)
        tasks: Any = "-"
        if response.active_tasks is not None:
            self._owned[request.member_id] = (response.active_tasks, response.standby_tasks)
            # Which ones is up to the assignor.
            tasks = [_count(rows) for rows in (response.active_tasks, response.standby_tasks, response.warmup_tasks)]
        if not response.error_code:
            self._epochs[request.member_id] = response.member_epoch
        # Two topics that are missing are named in any order.
        statuses = [(row.status_code, sorted(row.status_detail.split())) for row in response.status]
        self._tell(what, response.error_code, response.member_epoch, response.heartbeat_interval_ms, tasks, statuses)
        if response.error_code:
            self._tell(response.error_message)
        return response

    def beat_until(self, member: str, is_so: Callable[[Any], object]) -> None:
        """Beat until topics are there; how often that takes is not part of the story."""
        deadline = time.monotonic() + PATIENCE_S
        told = [*self.told]
        while not is_so(self.beat(member)):
            self.told = [*told]
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def tell_group(self, group: str = GROUP) -> None:
        (found,) = self._wire.call(StreamsGroupDescribeRequest([group], True), 0).groups
        members = sorted(
            (
                *(row.member_id, row.member_epoch, row.topology_epoch, row.process_id, row.client_host),
                *([tuple(tag) for tag in row.client_tags], row.user_endpoint and tuple(row.user_endpoint)),
                *(_count(row.assignment.active_tasks), _count(row.target_assignment.active_tasks)),
                *(_count(row.assignment.standby_tasks), _count(row.target_assignment.standby_tasks)),
                *(row.is_classic, row.instance_id, row.rack_id),
            )
            for row in found.members
        )
        topology = found.topology and _plain(found.topology)
        epochs = (found.group_epoch, found.assignment_epoch, found.authorized_operations)
        self._tell("group", found.error_code, found.error_message, found.group_state, epochs, members, topology)

    def tell_listed(self) -> None:
        rows = self._wire.call(ListGroupsRequest(types_filter=["streams"]), 5).groups
        self._tell("listed", sorted(tuple(row) for row in rows))

    def tell_topics(self, *names: str) -> None:
        rows = self._wire.call(MetadataRequest([MetadataRequestTopic(name=name) for name in names], False), 12).topics
        self._tell("topics", sorted((row.name, row.error_code, len(row.partitions)) for row in rows))

    def commit(self, member: str, epoch: int, *partitions: int, topic: str = TOPIC, version: int = 9) -> None:
        rows = [committing.OffsetCommitRequestPartition(number, 1) for number in partitions]
        topics = [committing.OffsetCommitRequestTopic(topic, partitions=rows)]
        response = self._wire.call(committing.OffsetCommitRequest(GROUP, epoch, member, None, topics=topics), version)
        self._tell("commit", member, [row.error_code for row in response.topics[0].partitions])

    def fetch(self, member: str | None, epoch: int) -> None:
        group = OffsetFetchRequestGroup(GROUP, member, epoch, [OffsetFetchRequestTopics(TOPIC, partition_indexes=[0])])
        (found,) = self._wire.call(OffsetFetchRequest(groups=[group]), 9).groups
        self._tell("fetch", member, found.error_code, [row.partitions[0].committed_offset for row in found.topics])

    def tell_error(self, what: str, request: Any, version: int, rows: str = "") -> None:
        response = self._wire.call(request, version)
        self._tell(what, (getattr(response, rows)[0] if rows else response).error_code)

    def create(self, name: str, partitions: int) -> None:
        self._wire.call(CreateTopicsRequest([CreatableTopic(name, partitions, 1)], 10_000), 7)


def _count(rows: Any) -> list[tuple[str, int]]:
    return sorted((row.subtopology_id, len(row.partitions)) for row in rows)


def _plain(value: Any) -> Any:
    """A message without its classes."""
    if hasattr(value, "_fields") or isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def play(address: str) -> list[str]:
    with WireClient(address) as wire:
        story = Story(wire)
        story.prepare()
        come_and_go(story)
        refuse(story)
        misfit(story)
        return story.told


def come_and_go(story: Story) -> None:
    story.tell_group()
    story.join("a", COUNTS)
    story.tell_group()
    story.beat_until("a", lambda response: response.active_tasks)
    story.tell_group()
    story.tell_topics("app-words-repartition", "app-counts-changelog")
    story.beat("a")
    story.join("b", COUNTS, user_endpoint=Endpoint("here", 80), rack_id="rack")
    story.tell_group()
    for member in ("a", "a", "b", "b"):
        story.beat(member)
    story.tell_group()
    story.tell_listed()
    story.commit("b", 9, 0)
    story.commit("b", 1, 0)
    story.commit("stranger", 4, 0)
    story.commit("a", 4, 0, 1, 2)
    story.commit("a", 4, 0, version=8)
    story.commit("", -1, 0)
    story.fetch("a", 4)
    story.fetch("a", 3)
    story.fetch("stranger", 3)
    story.fetch(None, -1)
    story.join("c", COUNTS, process="b")
    story.join("d", COUNTS)
    story.leave("a")
    story.leave("a")
    for member in ("b", "c", "b", "c", "b", "c"):
        story.beat(member)
    story.tell_group()
    story.tell_error("delete", DeleteGroupsRequest([GROUP]), 2, "results")
    story.tell_error("describe as classic", DescribeGroupsRequest([GROUP]), 6, "groups")
    story.beat("b", shutdown_application=True)
    story.beat("c")


def refuse(story: Story) -> None:
    consumer = consuming.ConsumerGroupHeartbeatRequest(GROUP, "x", 0, None, None, 60_000, [TOPIC], None, None, [])
    story.tell_error("consumer", consumer, 1)
    story.tell_error("share", ShareGroupHeartbeatRequest(GROUP, "x", 0, None, [TOPIC]), 1)
    protocol = joining.JoinGroupRequestProtocol("range", b"\0\1\0\0\0\0\xff\xff\xff\xff\0\0\0\0")
    story.tell_error("classic", joining.JoinGroupRequest(GROUP, 10_000, 10_000, "", None, "consumer", [protocol]), 3)
    story.beat("b", member_epoch=99)
    story.beat("b", member_epoch=1)
    story.beat("nobody", member_epoch=2)
    story.beat("b", group_id="nowhere")
    story.beat("b", active_tasks=[TaskIds("0", [7])])
    story.beat("b", active_tasks=[TaskIds("7", [0])])
    story.beat("b", active_tasks=None)
    story.beat("b", instance_id="i")
    story.beat("b", warmup_tasks=[TaskIds("0", [0])])
    story.beat("b", task_offsets=[TaskOffset("0", 0, 1)])
    story.beat("b", task_end_offsets=[])
    story.beat("b", topology=Topology(0, COUNTS))
    story.beat("b", rack_id="")
    story.beat("b", group_id=" ")
    story.beat("", member_epoch=2)
    story.beat("b", member_epoch=-3)
    story.join("e", COUNTS[:1])
    story.join("e", COUNTS, epoch=1)
    story.join("e", COUNTS, rebalance_timeout_ms=-1)
    story.join("e", COUNTS, topology=None)
    story.join("e", COUNTS, active_tasks=[TaskIds("0", [0])])
    story.join("e", [Subtopology("0", [], [".*"])], "other")
    story.join("e", [Subtopology("0", ["__consumer_offsets"])], "other")
    story.join("e", [Subtopology("0", ["no topic"])], "other")
    story.join("e", [Subtopology("0", [TOPIC], [], [TopicInfo("log", 2)])], "other")
    story.join("e", [Subtopology("0", [TOPIC], repartition_source_topics=[TopicInfo("lone")])], "other")
    for member in ("b", "c"):
        story.leave(member)
    story.tell_group()
    story.tell_listed()
    story.tell_error("delete", DeleteGroupsRequest([GROUP]), 2, "results")
    story.tell_group()


def misfit(story: Story) -> None:
    """Source topics that are missing, that come, and that are not alike."""
    rows = [Subtopology("0", [TOPIC, LATER], copartition_groups=[CopartitionGroup([0, 1])])]
    story.join("a", rows)
    story.tell_group()
    story.create(LATER, 2)
    story.beat_until("a", lambda response: response.status[0].status_code != MISSING_SOURCE_TOPICS)
    story.tell_group()
    fixed = [
        Subtopology("0", [TOPIC], repartition_sink_topics=["fixed-repartition"]),
        Subtopology(
            "1",
            [LATER],
            repartition_source_topics=[TopicInfo("fixed-repartition", 5)],
            copartition_groups=[CopartitionGroup([0], [], [0])],
        ),
    ]
    story.join("a", fixed, "fixed")
    story.tell_group("fixed")


def test_the_answers_are_those_of_kafka(tmp_path: Path) -> None:
    if (missing := java_missing(VERSION)) is not None:
        pytest.skip(missing)
    with kafka(tmp_path / "kafka") as address:
        expected = play(address)
    with Cluster(SETTINGS) as cluster:
        told = play(cluster.bootstrap_servers)
    assert told == expected
