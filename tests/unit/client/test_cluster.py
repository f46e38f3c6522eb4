"""A cluster asked from one thread: fallbacks, leaders that move, and topics that are made once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.client.address import Address
from penstock.client.cluster import ClusterClient
from penstock.client.failures import NoAnswer, NotServed
from penstock.client.operations import routing
from penstock.client.operations.offsets import LATEST
from penstock.client.settings import read_settings
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.wire.apis import ApiKey
from penstock.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from penstock.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from penstock.wire.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from penstock.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from support.scripted_broker import ScriptedBroker

ORDERS = TopicPartition("orders", 0)


class Pair:
    """Two brokers of one topic with one partition; `leader` is the one in the metadata, `leads` who serves it."""

    def __init__(self, one: ScriptedBroker, two: ScriptedBroker) -> None:
        self.brokers = {1: one, 2: two}
        self.leader = self.leads = 1
        self.refusals: list[ErrorCode] = []
        for number, broker in self.brokers.items():
            broker.answers[ApiKey.METADATA] = self._metadata
            broker.answers[ApiKey.LIST_OFFSETS] = lambda _, number=number: self._offsets(number)

    def _metadata(self, request: Any) -> MetadataResponse:
        self.leader, told = self.leads, self.leader
        known = [topic.name == "orders" for topic in request.topics or ()]
        partition = MetadataResponsePartition(leader_id=told, partition_index=0)
        orders = MetadataResponseTopic(0, "orders", partitions=[partition])
        missing = MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "missing")
        return MetadataResponse(
            brokers=[MetadataResponseBroker(n, "127.0.0.1", broker.port) for n, broker in self.brokers.items()],
            topics=[orders if each else missing for each in known] if known else [orders],
        )

    def _offsets(self, number: int) -> ListOffsetsResponse:
        error = ErrorCode.NONE if number == self.leads else ErrorCode.NOT_LEADER_OR_FOLLOWER
        error = self.refusals.pop() if self.refusals else error
        row = ListOffsetsPartitionResponse(0, error, offset=40 + number)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse("orders", [row])])


@pytest.fixture
def pair() -> Iterator[Pair]:
    with ScriptedBroker() as one, ScriptedBroker() as two:
        yield Pair(one, two)


def client_of(bootstrap: str, patience_s: float = 10.0) -> ClusterClient:
    return ClusterClient(read_settings({"bootstrap.servers": bootstrap}), patience_s=patience_s)


def test_offsets_are_asked_of_the_leader_wherever_it_has_gone(pair: Pair) -> None:
    with client_of(pair.brokers[1].address) as client:
        assert client.offsets({ORDERS: LATEST}) == {ORDERS: 41}
        pair.leads = 2
        # The first metadata after the change still name the old leader.
        assert client.offsets({ORDERS: LATEST}) == {ORDERS: 42}
        assert client.leader(ORDERS).address == Address("127.0.0.1", pair.brokers[2].port)


def test_a_leader_that_does_not_know_a_new_topic_yet_is_queried_again(pair: Pair) -> None:
    pair.refusals = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    with client_of(pair.brokers[2].address) as client:
        assert client.offsets({ORDERS: LATEST}) == {ORDERS: 41}
        with pytest.raises(ApiError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            client.offsets({TopicPartition("missing", 0): LATEST})


def test_a_client_that_knows_nothing_finds_the_leader(pair: Pair) -> None:
    with client_of(pair.brokers[2].address) as client:
        assert client.leader(ORDERS).address == Address("127.0.0.1", pair.brokers[1].port)


def test_a_connection_that_broke_is_opened_again(pair: Pair) -> None:
    broker = pair.brokers[1]
    with client_of(broker.address) as client:
        assert client.topics() == ["orders"]
        broker.hang_up()
        assert client.ask_at(Address("127.0.0.1", broker.port), MetadataRequest()).topics
        assert broker.connections == 2


def test_brokers_that_answers_name_are_asked_when_those_of_the_list_are_gone(pair: Pair) -> None:
    one, two = pair.brokers.values()
    rows = [DescribeClusterBroker(9, "127.0.0.1", 1, None, True), DescribeClusterBroker(2, "127.0.0.1", two.port)]
    one.answers[ApiKey.DESCRIBE_CLUSTER] = lambda _: DescribeClusterResponse(brokers=rows)
    with client_of(one.address) as client:
        client.ask(DescribeClusterRequest())
        one.answers.clear()
        one.hang_up()
        assert client.ask(MetadataRequest()).topics


def test_topics_that_are_not_there_are_left_out(pair: Pair) -> None:
    with client_of(pair.brokers[1].address) as client:
        assert client.partitions(["orders", "missing"]) == {"orders": [0]}


def test_a_topic_is_made_once_and_refusals_come_out(pair: Pair) -> None:
    results = [
        CreatableTopicResult("t", error_code=ErrorCode.NOT_CONTROLLER),
        CreatableTopicResult("t"),
        CreatableTopicResult("t", error_code=ErrorCode.TOPIC_ALREADY_EXISTS),
        CreatableTopicResult("t", error_code=ErrorCode.POLICY_VIOLATION, error_message="not here"),
    ]
    broker = pair.brokers[1]
    broker.answers[ApiKey.CREATE_TOPICS] = lambda _: CreateTopicsResponse(topics=[results.pop(0)])
    with client_of(broker.address) as client:
        assert client.ensure_topic("t", 3, configs={"cleanup.policy": "compact"})
        assert not client.ensure_topic("t")
        with pytest.raises(ApiError, match=r"t: not here \(POLICY_VIOLATION\)"):
            client.ensure_topic("t")
    (created,) = broker.asked[1].topics
    assert (created.num_partitions, created.replication_factor) == (3, -1)
    assert [(config.name, config.value) for config in created.configs] == [("cleanup.policy", "compact")]


def test_a_setting_of_a_topic_is_read(pair: Pair) -> None:
    broker = pair.brokers[1]
    rows = [DescribeConfigsResourceResult("max.message.bytes", "77")]
    broker.answers[ApiKey.DESCRIBE_CONFIGS] = lambda _: DescribeConfigsResponse(
        results=[DescribeConfigsResult(resource_name="t", configs=rows)]
    )
    with client_of(broker.address) as client:
        assert client.topic_config("t", "max.message.bytes") == "77"


def test_what_is_not_served_is_not_asked_again(pair: Pair) -> None:
    with client_of(pair.brokers[1].address) as client:
        with pytest.raises(NotServed):
            client.ensure_topic("t")
        assert pair.brokers[1].connections == 1


def test_patience_ends_with_the_last_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "PAUSE_FIRST_S", 0.001)
    with client_of("127.0.0.1:1,127.0.0.1:2", patience_s=0.05) as client:
        with pytest.raises(TimeoutError, match=r"at 127\.0\.0\.1:1, 127\.0\.0\.1:2 did not answer within .*nothing"):
            client.topics()
        with pytest.raises(NoAnswer, match=r"127\.0\.0\.1:1: nothing listens.*; 127\.0\.0\.1:2: nothing"):
            client.ask(MetadataRequest())
