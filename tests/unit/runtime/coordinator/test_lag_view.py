"""The lag of groups: what is unread, for how long, by whom, and how a group is doing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.core.group.offsets.offsets import Commit, CommittedOffset, PartitionProgress
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.runtime.coordinator.lag import LagView
from penstock.storage.files import OsFilesystem
from penstock.storage.log import Log
from penstock.storage.settings import LogSettings
from penstock.wire.frame import encode_versioned
from penstock.wire.messages.consumer_protocol import ConsumerProtocolAssignment
from penstock.wire.messages.consumer_protocol import TopicPartition as AssignedPartitions
from penstock.wire.records import Record, build_batch, read_header

NOW_MS = 1_000_000_000_000
ORDERS, CLICKS = TopicPartition("orders", 0), TopicPartition("clicks", 3)
MINUTE_MS = 60_000


class World:
    """Logs with a record every second, the last of them now, and the offsets that a group has committed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.partitions: dict[TopicPartition, Any] = {}
        self.progress: dict[TopicPartition, PartitionProgress] = {}
        self.modern: Any = None
        self.classic: Any = None
        self.view = LagView(cast("Any", SimpleNamespace(now_ms=lambda: NOW_MS)), cast("Any", self))
        self.consumer = self

    def get(self, topic: str, partition: int) -> Any:
        return self.partitions.get(TopicPartition(topic, partition))

    def committed(self, group_id: str) -> dict[TopicPartition, PartitionProgress]:
        assert group_id == "group"
        return self.progress

    def describe(self, _: str) -> Any:
        if self.modern is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, "it is no consumer group")
        return self.modern

    def describe_group(self, _: str) -> Any:
        if self.classic is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, "it is no classic group")
        return self.classic

    def add(self, name: TopicPartition, count: int, timestamp: int | None = None) -> Log:
        log = Log.open(
            OsFilesystem(), self.path / str(name), LogSettings(), now_ms=NOW_MS, clean=True, recovery_point=0
        )
        for offset in range(count):
            at_ms = NOW_MS - 1_000 * (count - 1 - offset) if timestamp is None else timestamp
            data = build_batch([Record(offset, at_ms, None, b"v")], base_offset=offset, leader_epoch=0)
            log.append([read_header(data)], data, NOW_MS)
        self.partitions[name] = SimpleNamespace(name=name, log=log, high_watermark=count)
        return log

    def commit(self, name: TopicPartition, offset: int, *history: tuple[int, int]) -> None:
        """Commits, oldest first, of an offset so many milliseconds ago; the last one is of `offset`."""
        commits = tuple(Commit(at, NOW_MS - ago_ms) for at, ago_ms in history)
        last_ms = commits[-1].timestamp_ms if commits else NOW_MS - 5_000
        self.progress[name] = PartitionProgress(CommittedOffset(offset, -1, "", last_ms, -1, 0), commits)

    def measure(self, **options: Any) -> Any:
        return self.view.measure(cast("Any", self), "group", **options)

    def row(self) -> Any:
        (row,) = self.measure().partitions
        return row


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    for partition in made.partitions.values():
        partition.log.close(clean=False)


def test_the_lag_is_what_is_committed_to_the_log_and_unread(world: World) -> None:
    world.add(ORDERS, 10)
    world.add(CLICKS, 5)
    world.commit(ORDERS, 4)
    world.commit(CLICKS, 5)
    world.commit(TopicPartition("elsewhere", 0), 1)
    group = world.measure()
    assert (group.group_id, group.lag, group.lag_ms) == ("group", 6, 5_000)
    clicks, orders = group.partitions
    assert (orders.topic, orders.partition, orders.committed_offset, orders.end_offset) == ("orders", 0, 4, 10)
    # Record 4 is the first unread one, and was appended five seconds before the last.
    assert (orders.lag, orders.lag_ms, orders.committed_ms) == (6, 5_000, NOW_MS - 5_000)
    assert (clicks.topic, clicks.partition, clicks.lag, clicks.lag_ms, clicks.status) == ("clicks", 3, 0, 0, "OK")
    assert [row.topic for row in world.measure(is_shown=lambda topic: topic == "clicks").partitions] == ["clicks"]


def test_records_that_are_not_committed_to_the_log_are_not_lag(world: World) -> None:
    world.add(ORDERS, 10)
    world.partitions[ORDERS].high_watermark = 7
    world.commit(ORDERS, 4)
    assert (world.row().lag, world.row().end_offset) == (3, 7)


@pytest.mark.parametrize(
    ("committed", "lag", "lag_ms"), [(-1, 10, 9_000), (-(2**63), 10, 9_000), (12, 0, 0), (10, 0, 0)]
)
def test_clients_may_commit_any_number(world: World, committed: int, lag: int, lag_ms: int) -> None:
    world.add(ORDERS, 10)
    world.commit(ORDERS, committed)
    assert (world.row().lag, world.row().lag_ms) == (lag, lag_ms)


@pytest.mark.parametrize(("timestamp", "lag_ms"), [(-1, -1), (0, NOW_MS), (NOW_MS, 0), (NOW_MS + 5_000, 0)])
def test_the_age_of_a_record_is_unknown_without_its_time_and_never_negative(
    world: World, timestamp: int, lag_ms: int
) -> None:
    world.add(ORDERS, 10, timestamp)
    world.commit(ORDERS, 4)
    assert world.row().lag_ms == lag_ms


def test_the_age_is_unknown_where_the_log_cannot_be_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    log = world.add(ORDERS, 10)
    world.commit(ORDERS, 4)

    def fail(*_: object, **__: object) -> Any:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk failed")

    monkeypatch.setattr(Log, "read", fail)
    monkeypatch.setattr(Log, "offset_for_timestamp", fail)
    assert (world.row().lag, world.row().lag_ms) == (6, -1)
    assert log.end_offset == 10


def test_deleted_records_are_not_counted_from(world: World) -> None:
    log = world.add(ORDERS, 10)
    log.advance_start_offset(7)
    world.commit(ORDERS, 2)
    # They count as lag, as in Kafka, but the first that can be read decides the age.
    assert (world.row().lag, world.row().lag_ms) == (8, 2_000)


@pytest.mark.parametrize(
    ("offset", "history", "status"),
    [
        # The lag at the first commit was 0: everything was read.
        (5, [(4, 6_000), (5, 1_000)], "OK"),
        # It was 2 then, and is 6.
        (4, [(2, 6_000), (4, 1_000)], "WARN"),
        # It was 6 then, and is 2.
        (18, [(8, 6_000), (18, 1_000)], "OK"),
        (4, [(4, 3_000), (4, 1_000)], "STALL"),
        (4, [(3, 62_000), (4, 61_000)], "STOP"),
        (10, [(3, 62_000), (10, 61_000)], "OK"),
    ],
)
def test_a_group_does_as_well_as_its_worst_partition(
    world: World, offset: int, history: list[tuple[int, int]], status: str
) -> None:
    count = {18: 20, 8: 20}.get(offset, 10)
    world.add(ORDERS, count)
    world.add(CLICKS, 1)
    world.commit(ORDERS, offset, *history)
    world.commit(CLICKS, 1)
    group = world.measure()
    assert (group.state, group.partitions[1].status) == (status, status)


def assigned(topic: str, *partitions: int) -> bytes:
    return encode_versioned(ConsumerProtocolAssignment([AssignedPartitions(topic, list(partitions))]), 0)


def owner(row: Any) -> tuple[str, str, str]:
    return row.member_id, row.client_id, row.client_host


def test_partitions_have_the_member_that_reads_them(world: World) -> None:
    world.add(ORDERS, 1)
    world.add(CLICKS, 1)
    world.commit(ORDERS, 0)
    world.commit(CLICKS, 0)
    assert [owner(row) for row in world.measure().partitions] == [("", "", "")] * 2
    topic = SimpleNamespace(topic_name="orders", partitions=[0, 1])
    member = SimpleNamespace(
        member_id="m", client_id="c", client_host="h", assignment=SimpleNamespace(topic_partitions=[topic])
    )
    world.modern = SimpleNamespace(members=[member])
    assert [owner(row) for row in world.measure().partitions] == [("", "", ""), ("m", "c", "h")]


def test_classic_members_are_known_by_their_assignments(world: World) -> None:
    world.add(ORDERS, 1)
    world.add(CLICKS, 1)
    world.commit(ORDERS, 0)
    world.commit(CLICKS, 0)

    def member(name: str, assignment: bytes) -> Any:
        return SimpleNamespace(member_id=name, client_id="c", client_host="h", member_assignment=assignment)

    members = [member("new", b""), member("odd", b"\xff\xff\xff"), member("m", assigned("clicks", 2, 3))]
    world.classic = SimpleNamespace(protocol_type="consumer", members=members)
    assert [owner(row) for row in world.measure().partitions] == [("m", "c", "h"), ("", "", "")]
    world.classic.protocol_type = "connect"
    assert [owner(row) for row in world.measure().partitions] == [("", "", "")] * 2
