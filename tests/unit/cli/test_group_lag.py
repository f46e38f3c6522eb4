"""Lag from Penstock's coordinators where they answer, and from offsets where another Kafka hangs up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.cli.group.lag import GroupLag, LagSource, PartitionLag
from penstock.cli.options import Connection
from penstock.cli.wire_client import WireClient
from penstock.client.operations.groups import Group, Member
from penstock.client.operations.offsets import LATEST
from penstock.client.view import BrokerView
from penstock.model.ids import TopicPartition
from penstock.wire.apis import ApiKey
from penstock.wire.messages.describe_lag import DescribeLagResponse, LagGroup, LagPartition
from support.scripted_broker import ScriptedBroker
from unit.cli.scripted_groups import scripted_cluster

MEMBER = Member("m-1", "reader", "10.0.0.1", None, (TopicPartition("orders", 0), TopicPartition("orders", 1)))
MEASURED = DescribeLagResponse(
    groups=[
        LagGroup("g", 0, "WARN", 7, 1500, [LagPartition("orders", 0, 3, 10, 7, 1500, "WARN", 99, "m-1", "reader", "x")])
    ]
)


@pytest.fixture
def client() -> Iterator[WireClient]:
    """Of a cluster where every group has committed 4 in orders-0, whose end is 12, and 1 in a topic that is gone."""
    with scripted_cluster() as (cluster, client):
        cluster.committed = {"orders": [(0, 4, -1, "")], "gone": [(0, 1, -1, "")]}
        cluster.offsets[LATEST] = 12
        yield client


@contextmanager
def coordinator(response: DescribeLagResponse | None) -> Iterator[tuple[BrokerView, ScriptedBroker]]:
    """A broker that gives this response, or hangs up as Kafka does on a key that it does not know."""
    with ScriptedBroker() as broker:
        if response is not None:
            broker.answers[ApiKey.DESCRIBE_LAG] = lambda _: response
        yield BrokerView(1, "127.0.0.1", broker.port), broker


def group(broker: BrokerView, *members: Member) -> Group:
    return Group("g", "classic", "Stable", "range", broker, members)


def test_a_penstock_coordinator_returns_everything(client: WireClient) -> None:
    with coordinator(MEASURED) as (view, _):
        lag = LagSource(client).measure([group(view)])["g"]
    assert lag.partitions == [PartitionLag("orders", 0, 3, 10, 7, 1500, "WARN", 99)]
    assert (lag.lag, lag.lag_ms, lag.status) == (7, 1500, "WARN")


def test_another_kafka_is_queried_once_and_then_measured_by_offsets(client: WireClient) -> None:
    with coordinator(None) as (view, broker):
        source = LagSource(client)
        for _ in range(3):
            lag = source.measure([group(view)])["g"]
        assert broker.connections == 1
    assert lag.partitions == [PartitionLag("gone", 0, 1), PartitionLag("orders", 0, 4, 12, 8)]
    assert (lag.lag, lag.lag_ms, lag.status) == (8, None, None)


def test_a_penstock_broker_that_was_away_is_queried_again(client: WireClient) -> None:
    with coordinator(MEASURED) as (view, _):
        source = LagSource(client)
        assert source.measure([group(view)])["g"].status == "WARN"
    assert source.measure([group(view)])["g"].status is None
    with coordinator(MEASURED) as (view, back):
        assert source.measure([group(view)])["g"].status == "WARN"
        assert back.connections == 1


def test_a_coordinator_that_is_loading_is_measured_by_offsets(client: WireClient) -> None:
    with coordinator(DescribeLagResponse(groups=[LagGroup("g", 14)])) as (view, _):
        lag = LagSource(client).measure([group(view)])["g"]
    assert lag.lag == 8


def test_a_sign_in_given_with_x_is_used() -> None:
    properties = {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "SCRAM-SHA-256"}
    properties |= {"sasl.username": "ann", "sasl.password": "secret"}
    with ScriptedBroker(mechanism="SCRAM-SHA-256") as broker:
        broker.answers[ApiKey.DESCRIBE_LAG] = lambda _: MEASURED
        with WireClient(Connection(broker.address, properties)) as client:
            view = BrokerView(1, "127.0.0.1", broker.port)
            assert LagSource(client).measure([group(view)])["g"].status == "WARN"


def test_what_members_read_without_a_commit_is_shown_too(client: WireClient) -> None:
    with coordinator(MEASURED) as (view, _):
        lag = LagSource(client).measure([group(view, MEMBER)])["g"]
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
