"""Probes of records, metadata and settings."""

from __future__ import annotations

from typing import Any

from access_answers import authorization_errors, digest
from access_probe import ABSENT, CREATED, NOBODY, VICTIM, VICTIM_BY_ID, Probe
from access_rights import HIDDEN, SEEN

from penstock.wire.messages import (
    alter_configs,
    create_topics,
    delete_records,
    delete_topics,
    describe_configs,
    describe_topic_partitions,
    fetch,
    incremental_alter_configs,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from penstock.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from penstock.wire.messages.describe_cluster import DescribeClusterRequest
from penstock.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from penstock.wire.messages.list_config_resources import ListConfigResourcesRequest
from support.wire_client import batch_of


def _produce(
    topic: str, topic_id: bytes, transactional_id: str | None = None, **options: Any
) -> produce.ProduceRequest:
    data = [produce.PartitionProduceData(0, batch_of([b"probe"], **options))]
    return produce.ProduceRequest(transactional_id, 1, 10_000, [produce.TopicProduceData(topic, topic_id, data)])


def _fetch(topics: list[fetch.FetchTopic], **replica: Any) -> fetch.FetchRequest:
    return fetch.FetchRequest(max_bytes=1 << 20, session_epoch=-1, topics=topics, **replica)


def _fetched(topic: str, topic_id: bytes = bytes(16)) -> fetch.FetchTopic:
    return fetch.FetchTopic(topic, topic_id, [fetch.FetchPartition(0, -1, 0, partition_max_bytes=1 << 20)])


TRANSACTIONAL = {"producer_id": 77, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
BROKER, TOPIC, GROUP = 4, 2, 32

DATA = [
    Probe("produce", _produce(SEEN, bytes(16)), 12),
    Probe("produce by id", lambda world: _produce("", world.topic_ids[SEEN])),
    Probe("produce hidden", _produce(HIDDEN, bytes(16)), 12),
    Probe("produce hidden by id", lambda world: _produce("", world.topic_ids[HIDDEN])),
    Probe("produce absent", _produce(ABSENT, bytes(16)), 12),
    Probe(
        "produce in a transaction",
        _produce(SEEN, bytes(16), SEEN, **TRANSACTIONAL),
        12,
        authorization_errors,
    ),
    Probe(
        "produce in nobody's transaction",
        _produce(SEEN, bytes(16), None, **TRANSACTIONAL),
        12,
        authorization_errors,
    ),
    Probe("fetch", _fetch([_fetched(SEEN), _fetched(HIDDEN), _fetched(ABSENT)]), 12),
    Probe(
        "fetch by id",
        lambda world: _fetch(
            [_fetched("", world.topic_ids[SEEN]), _fetched("", world.topic_ids[HIDDEN]), _fetched("", b"?" * 16)]
        ),
    ),
    Probe("fetch as a replica", _fetch([_fetched(SEEN)], replica_id=NOBODY), 12, authorization_errors),
    Probe(
        "fetch as a replica by id",
        lambda world: _fetch([_fetched("", world.topic_ids[SEEN])], replica_state=fetch.ReplicaState(NOBODY, -1)),
        None,
        authorization_errors,
    ),
    Probe(
        "list offsets",
        list_offsets.ListOffsetsRequest(
            -1,
            0,
            [
                list_offsets.ListOffsetsTopic(name, [list_offsets.ListOffsetsPartition(0, -1, -1)])
                for name in (SEEN, HIDDEN)
            ],
        ),
    ),
    Probe(
        "offset for leader epoch",
        offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            -1,
            [
                offset_for_leader_epoch.OffsetForLeaderTopic(
                    name, [offset_for_leader_epoch.OffsetForLeaderPartition(0, -1, 0)]
                )
                for name in (SEEN, HIDDEN)
            ],
        ),
    ),
    Probe(
        "delete records",
        delete_records.DeleteRecordsRequest(
            [
                delete_records.DeleteRecordsTopic(name, [delete_records.DeleteRecordsPartition(0, 0)])
                for name in (SEEN, HIDDEN, ABSENT)
            ],
            5_000,
        ),
    ),
    Probe(
        "describe producers",
        DescribeProducersRequest([TopicRequest(name, [0]) for name in (SEEN, HIDDEN, ABSENT)]),
    ),
]


def _metadata(*topics: metadata.MetadataRequestTopic, **options: Any) -> metadata.MetadataRequest:
    options = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": True} | options
    return metadata.MetadataRequest(topics or None, **options)


METADATA = [
    Probe(
        "metadata",
        _metadata(*(metadata.MetadataRequestTopic(name=name) for name in (SEEN, HIDDEN, ABSENT))),
    ),
    Probe(
        "metadata by id",
        lambda world: _metadata(
            *(
                metadata.MetadataRequestTopic(topic_id, None)
                for topic_id in (world.topic_ids[SEEN], world.topic_ids[HIDDEN], b"?" * 16)
            )
        ),
    ),
    Probe("metadata of all", _metadata()),
    Probe(
        "metadata of the cluster",
        _metadata(metadata.MetadataRequestTopic(name=SEEN), include_cluster_authorized_operations=True),
        10,
    ),
    Probe(
        "metadata that creates",
        _metadata(
            metadata.MetadataRequestTopic(name=CREATED),
            allow_auto_topic_creation=True,
            include_topic_authorized_operations=False,
        ),
        None,
        authorization_errors,
    ),
    Probe("describe cluster", DescribeClusterRequest(True)),
    Probe(
        "describe topic partitions",
        describe_topic_partitions.DescribeTopicPartitionsRequest(
            [describe_topic_partitions.TopicRequest(name) for name in (SEEN, HIDDEN, ABSENT)]
        ),
    ),
    Probe(
        "describe all topic partitions",
        describe_topic_partitions.DescribeTopicPartitionsRequest([]),
    ),
    Probe(
        "create topics",
        create_topics.CreateTopicsRequest(
            [create_topics.CreatableTopic(name, 1, 1) for name in (f"{SEEN}-new", f"{HIDDEN}-new")], 5_000, True
        ),
        None,
        # Kafka makes an id up for a topic that it does not create.
        lambda answer: digest(answer._replace(topics=[topic._replace(topic_id=bytes(16)) for topic in answer.topics])),
    ),
    Probe(
        "delete topics",
        delete_topics.DeleteTopicsRequest(
            [delete_topics.DeleteTopicState(name) for name in (VICTIM, HIDDEN, ABSENT, f"{HIDDEN}-absent")], (), 5_000
        ),
    ),
    Probe(
        "delete topics by id",
        lambda world: delete_topics.DeleteTopicsRequest(
            [
                delete_topics.DeleteTopicState(None, topic_id)
                for topic_id in (world.topic_ids[VICTIM_BY_ID], world.topic_ids[HIDDEN], b"?" * 16)
            ],
            (),
            5_000,
        ),
    ),
    Probe(
        "create partitions",
        CreatePartitionsRequest([CreatePartitionsTopic(name, 5, None) for name in (SEEN, HIDDEN, ABSENT)], 5_000, True),
    ),
]


def _configs(module: Any, kind: int, name: str) -> Any:
    if module is describe_configs:
        return describe_configs.DescribeConfigsResource(kind, name, ["retention.ms"])
    if module is alter_configs:
        return alter_configs.AlterConfigsResource(kind, name, [])
    return incremental_alter_configs.AlterConfigsResource(kind, name, [])


SETTINGS = [
    Probe(
        name,
        request(
            [_configs(module, TOPIC, topic) for topic in (SEEN, HIDDEN, ABSENT)]
            + [_configs(module, GROUP, SEEN), _configs(module, BROKER, "1")],
            **more,
        ),
    )
    for name, module, request, more in (
        ("describe configs", describe_configs, describe_configs.DescribeConfigsRequest, {}),
        ("alter configs", alter_configs, alter_configs.AlterConfigsRequest, {"validate_only": True}),
        (
            "incremental alter configs",
            incremental_alter_configs,
            incremental_alter_configs.IncrementalAlterConfigsRequest,
            {"validate_only": True},
        ),
    )
] + [Probe("list config resources", ListConfigResourcesRequest([]))]
