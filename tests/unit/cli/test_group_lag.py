"""Lag from Penstock's coordinators where they answer, and from offsets where another Kafka hangs up."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import pytest

from penstock.cli.admin import Broker
from penstock.cli.group.admin import CommittedOffset, Group, GroupAdmin, Member
from penstock.cli.group.lag import GroupLag, LagSource, PartitionLag
from penstock.cli.options import Connection
from penstock.wire.codec import encode
from penstock.wire.messages.describe_lag import DescribeLagResponse, LagGroup, LagPartition

PLAIN = Connection("ignored:1", {})
MEMBER = Member("m-1", "reader", "10.0.0.1", None, (("orders", 0), ("orders", 1)))
MEASURED = DescribeLagResponse(
    groups=[
        LagGroup("g", 0, "WARN", 7, 1500, [LagPartition("orders", 0, 3, 10, 7, 1500, "WARN", 99, "m-1", "reader", "x")])
    ]
)


class FakeAdmin:
    """Committed and end offsets, and how often they were asked for."""

    def __init__(self) -> None:
        self.committed_asked: list[list[str]] = []

    def committed(self, group_ids: Sequence[str]) -> dict[str, dict[tuple[str, int], CommittedOffset]]:
        self.committed_asked.append(list(group_ids))
        return {name: {("orders", 0): CommittedOffset(4), ("gone", 0): CommittedOffset(1)} for name in group_ids}

    def end_offsets(self, partitions: set[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return {name: 12 for name in partitions if name[0] != "gone"}


@contextmanager
def coordinator(response: DescribeLagResponse | None, connections: list[int]) -> Iterator[Broker]:
    """A broker that gives one response to everything, or hangs up as Kafka does on a key that it does not know."""

    def serve() -> None:
        while True:
            try:
                accepted, _ = listener.accept()
            except OSError:
                return
            connections.append(1)
            with accepted:
                (size,) = struct.unpack(">i", accepted.recv(4, socket.MSG_WAITALL))
                accepted.recv(size, socket.MSG_WAITALL)
                if response is not None:
                    body = struct.pack(">ib", 1, 0) + encode(response, 0)
                    accepted.sendall(struct.pack(">i", len(body)) + body)

    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield Broker(1, "127.0.0.1", listener.getsockname()[1])
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def group(broker: Broker, *members: Member) -> Group:
    return Group("g", "classic", "Stable", "range", broker, members)


def test_a_penstock_coordinator_tells_everything() -> None:
    admin = FakeAdmin()
    with coordinator(MEASURED, []) as broker:
        lag = LagSource(cast(GroupAdmin, admin), PLAIN).measure([group(broker)])["g"]
    assert lag.partitions == [PartitionLag("orders", 0, 3, 10, 7, 1500, "WARN", 99)]
    assert (lag.lag, lag.lag_ms, lag.status) == (7, 1500, "WARN")
    assert admin.committed_asked == [[]]


def test_another_kafka_is_asked_once_and_then_measured_by_offsets() -> None:
    admin = FakeAdmin()
    connections: list[int] = []
    with coordinator(None, connections) as broker:
        source = LagSource(cast(GroupAdmin, admin), PLAIN)
        for _ in range(3):
            lag = source.measure([group(broker)])["g"]
    assert lag.partitions == [PartitionLag("gone", 0, 1), PartitionLag("orders", 0, 4, 12, 8)]
    assert (lag.lag, lag.lag_ms, lag.status) == (8, None, None)
    assert len(connections) == 1


def test_a_penstock_that_was_away_is_asked_again() -> None:
    with coordinator(MEASURED, []) as broker:
        source = LagSource(cast(GroupAdmin, FakeAdmin()), PLAIN)
        assert source.measure([group(broker)])["g"].status == "WARN"
    assert source.measure([group(broker)])["g"].status is None
    back: list[int] = []
    with coordinator(MEASURED, back) as broker:
        assert source.measure([group(broker)])["g"].status == "WARN"
    assert len(back) == 1


def test_a_coordinator_that_is_loading_is_measured_by_offsets() -> None:
    with coordinator(DescribeLagResponse(groups=[LagGroup("g", 14)]), []) as broker:
        lag = LagSource(cast(GroupAdmin, FakeAdmin()), PLAIN).measure([group(broker)])["g"]
    assert lag.lag == 8


@pytest.mark.parametrize("protocol", ["sasl_ssl", "SSL"])
def test_over_tls_nobody_is_asked_directly(protocol: str) -> None:
    connections: list[int] = []
    with coordinator(MEASURED, connections) as broker:
        secure = Connection("ignored:1", {"security.protocol": protocol})
        assert LagSource(cast(GroupAdmin, FakeAdmin()), secure).measure([group(broker)])["g"].lag == 8
    assert connections == []


def test_what_members_read_without_a_commit_is_shown_too() -> None:
    with coordinator(MEASURED, []) as broker:
        lag = LagSource(cast(GroupAdmin, FakeAdmin()), PLAIN).measure([group(broker, MEMBER)])["g"]
    assert [(each.partition, each.committed_offset, each.end_offset, each.lag) for each in lag.partitions] == [
        (0, 3, 10, 7),
        (1, None, 12, None),
    ]


def test_the_worst_partition_speaks_for_the_group() -> None:
    rows = [
        PartitionLag("t", 0, 1, 5, 4, 100, "OK"),
        PartitionLag("t", 1, 1, 3, 2, 900, "STALL"),
        PartitionLag("t", 2, 1, 9, 8, None, "STOP"),
        PartitionLag("t", 3),
    ]
    lag = GroupLag(rows)
    assert (lag.lag, lag.lag_ms, lag.status) == (14, 900, "STOP")
    assert (GroupLag().lag, GroupLag().lag_ms, GroupLag().status) == (0, None, None)
    assert GroupLag([PartitionLag("t", 3)]).lag is None
