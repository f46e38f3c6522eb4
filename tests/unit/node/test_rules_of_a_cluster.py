"""Rules and quotas for changes, as a running node enforces them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.model.errors import ErrorCode
from penstock.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from penstock.wire.messages.alter_configs import AlterableConfig as WholeConfig
from penstock.wire.messages.alter_configs import AlterConfigsRequest
from penstock.wire.messages.alter_configs import AlterConfigsResource as WholeResource
from penstock.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from penstock.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.node_thread import NodeThread
from support.wire_client import WireClient, batch_of, produce_request

BROKER, TOPIC = 4, 2
EXCEEDED, VIOLATION = ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.POLICY_VIOLATION


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeThread]:
    with NodeThread(tmp_path_factory.mktemp("rules")) as thread:
        yield thread


def set_rules(node: NodeThread, **rules: str | None) -> None:
    rows = [
        AlterableConfig(f"penstock.{name.replace('_', '.')}", 0 if value is not None else 1, value)
        for name, value in rules.items()
    ]
    with WireClient(node.address) as client:
        (row,) = client.call(IncrementalAlterConfigsRequest([AlterConfigsResource(BROKER, "", rows)]), 1).responses
    assert row.error_code == 0, row.error_message


def limit_changes(node: NodeThread, client_id: str, rate: float) -> None:
    entry = AlterClientQuotasRequestEntryData(
        [EntityData("client-id", client_id)], [OpData("controller_mutation_rate", rate, False)]
    )
    with WireClient(node.address) as client:
        assert client.call(AlterClientQuotasRequest([entry]), 1).entries[0].error_code == 0


def create(client: WireClient, version: int, *topics: CreatableTopic, **options: Any) -> Any:
    return client.call(CreateTopicsRequest(topics, **options), version)


def codes(rows: Any) -> list[int]:
    return [row.error_code for row in rows]


def test_changes_over_the_quota_are_refused_from_the_versions_that_know_it(node: NodeThread) -> None:
    limit_changes(node, "strict", 0.1)
    with WireClient(node.address, "strict") as client:
        # Eleven windows of a second at 0.1: one partition is free, and what is over it is owed.
        assert codes(create(client, 6, CreatableTopic("s1", 4, 1)).topics) == [0]
        response = create(client, 6, CreatableTopic("s2", 1, 1))
        assert codes(response.topics) == [EXCEEDED]
        assert response.topics[0].error_message == "The throttling quota has been exceeded."
        assert 20_000 < response.throttle_time_ms <= 30_000
    # The connection is muted; another one of the same client finds the same.
    with WireClient(node.address, "strict") as client:
        grown = client.call(CreatePartitionsRequest([CreatePartitionsTopic("s1", 5, None)]), 3)
        assert codes(grown.results) == [EXCEEDED]
    with WireClient(node.address, "strict") as client:
        deleted = client.call(DeleteTopicsRequest([DeleteTopicState("s1")]), 6)
        assert codes(deleted.responses) == [EXCEEDED]
        assert deleted.throttle_time_ms > 0
    with WireClient(node.address, "another") as client:
        assert codes(create(client, 6, CreatableTopic("s3", 4, 1)).topics) == [0]


def test_older_versions_are_throttled_and_not_refused(node: NodeThread) -> None:
    # One client id each: a throttled client waits, by whatever connection it comes.
    for client_id in ("patient-1", "patient-2", "patient-3"):
        limit_changes(node, client_id, 0.1)
    with WireClient(node.address, "patient-1") as client:
        response = create(client, 5, CreatableTopic("p1", 3, 1))
        assert codes(response.topics) == [0]
        assert response.throttle_time_ms > 10_000
    with WireClient(node.address, "patient-2") as client:
        grown = client.call(CreatePartitionsRequest([CreatePartitionsTopic("p1", 6, None)]), 2)
        assert codes(grown.results) == [0]
        assert grown.throttle_time_ms > 10_000
    with WireClient(node.address, "patient-3") as client:
        deleted = client.call(DeleteTopicsRequest(topic_names=["p1"]), 4)
        assert codes(deleted.responses) == [0]
        assert deleted.throttle_time_ms > 10_000


def test_a_topic_that_is_created_on_first_use_counts_for_its_client(node: NodeThread) -> None:
    limit_changes(node, "first-use", 0.1)
    with WireClient(node.address, "first-use") as client:
        create(client, 6, CreatableTopic("f1", 3, 1))
        asked = MetadataRequest([MetadataRequestTopic(name="f2")], allow_auto_topic_creation=True)
        assert codes(client.call(asked, 12).topics) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    with WireClient(node.address, "someone") as client:
        assert codes(client.call(asked, 12).topics) == [0]


def test_rules_about_topics(node: NodeThread) -> None:
    short = [CreatableTopicConfig("retention.ms", "1000")]
    with WireClient(node.address) as client:
        assert codes(create(client, 7, CreatableTopic("old", 1, 1, (), short)).topics) == [0]
        set_rules(node, topic_retention_ms_min="3600000", topic_partitions_max="3")
        try:
            for validate_only in (True, False):
                refused = create(client, 7, CreatableTopic("new", 1, 1, (), short), validate_only=validate_only)
                assert codes(refused.topics) == [VIOLATION]
                assert "penstock.topic.retention.ms.min" in refused.topics[0].error_message
                for request, version in (
                    (
                        IncrementalAlterConfigsRequest(
                            [AlterConfigsResource(TOPIC, "old", [AlterableConfig("retention.ms", 0, "2000")])],
                            validate_only,
                        ),
                        1,
                    ),
                    (
                        AlterConfigsRequest(
                            [WholeResource(TOPIC, "old", [WholeConfig("retention.ms", "2000")])], validate_only
                        ),
                        2,
                    ),
                ):
                    assert codes(client.call(request, version).responses) == [VIOLATION]
                grown = CreatePartitionsRequest([CreatePartitionsTopic("old", 4, None)], validate_only=validate_only)
                assert codes(client.call(grown, 3).results) == [VIOLATION]
            asked = MetadataRequest([MetadataRequestTopic(name="__consumer_offsets")])
            assert client.call(asked, 12).topics
            fine = IncrementalAlterConfigsRequest(
                [AlterConfigsResource(TOPIC, "old", [AlterableConfig("segment.ms", 0, "9999")])]
            )
            assert codes(client.call(fine, 1).responses) == [0]
        finally:
            set_rules(node, topic_retention_ms_min=None, topic_partitions_max=None)
        assert codes(create(client, 7, CreatableTopic("new", 4, 1, (), short)).topics) == [0]


def test_a_topic_refuses_weaker_acks_than_it_names(node: NodeThread) -> None:
    batch = batch_of(b"x")
    with WireClient(node.address) as client:
        own = [CreatableTopicConfig("penstock.acks.min", "1")]
        create(client, 7, CreatableTopic("own-acks", 1, 1, (), own), CreatableTopic("default-acks", 1, 1))
        assert client.produce("own-acks", batch, acks=1).error_code == 0
        set_rules(node, acks_min="all")
        try:
            # The topic's own setting wins.
            assert client.produce("own-acks", batch, acks=1).error_code == 0
            refused = client.produce("default-acks", batch, acks=1)
            assert refused.error_code == ErrorCode.INVALID_REQUIRED_ACKS
            assert "set acks=all in the producer" in (refused.error_message or "")
            assert client.produce("default-acks", batch, acks=-1).error_code == 0
        finally:
            set_rules(node, acks_min=None)
        assert client.produce("default-acks", batch, acks=1).error_code == 0
        # As in Kafka, an error without a response to put it into closes the connection.
        client.send(produce_request("own-acks", batch, acks=0), 9)
        assert client.is_closed()
