"""What each API about the cluster, its topics and settings must answer, whatever the version."""

from __future__ import annotations

import uuid

from api_world import Ask, World, fresh_name

from penstock.api.cluster.api_versions import TELEMETRY
from penstock.api.table import ADVERTISED
from penstock.model.errors import ErrorCode
from penstock.runtime.controller.links import LinkAction
from penstock.wire.messages import alter_configs, incremental_alter_configs
from penstock.wire.messages.alter_link import AlterableLinkConfig, AlterLinkRequest
from penstock.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from penstock.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.describe_cluster import DescribeClusterRequest
from penstock.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.wire.messages.describe_links import DescribeLinksRequest
from penstock.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from penstock.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from penstock.wire.messages.list_config_resources import ListConfigResourcesRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.restore_topics import (
    RestorablePartition,
    RestorableTopic,
    RestorableTopicConfig,
    RestoreTopicsRequest,
)

TOPIC, BROKER, CLIENT_METRICS = 2, 4, 16
NOT_ASKED = -(2**31)
SET, DELETE, APPEND = 0, 1, 2


def check_metadata(ask: Ask, world: World, version: int) -> None:
    every = ask(MetadataRequest(() if version == 0 else None, allow_auto_topic_creation=True), version)
    assert world.topic in {topic.name for topic in every.topics}
    (broker,) = every.brokers
    assert f"{broker.host}:{broker.port}" == world.cluster.bootstrap_servers
    if version >= 2:
        assert every.cluster_id
    if version >= 1:
        assert ask(MetadataRequest((), allow_auto_topic_creation=True), version).topics == ()
        assert every.controller_id == broker.node_id
    names = [MetadataRequestTopic(name=name) for name in (world.topic, "not/a/name")]
    found, bad = ask(MetadataRequest(names, allow_auto_topic_creation=True), version).topics
    assert (found.error_code, found.name, found.is_internal) == (0, world.topic, False)
    assert found.topic_id == (world.topic_id if version >= 10 else bytes(16))
    assert [row.partition_index for row in found.partitions] == [0, 1]
    assert all(row.leader_id == broker.node_id and list(row.isr_nodes) == [1] for row in found.partitions)
    assert bad.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    if version >= 4:
        absent = MetadataRequest([MetadataRequestTopic(name=world.missing)], allow_auto_topic_creation=False)
        assert ask(absent, version).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    fresh = MetadataRequest([MetadataRequestTopic(name=fresh_name())], allow_auto_topic_creation=True)
    # The first answer may ask for patience, as Kafka's does; a client then asks again.
    assert ask(fresh, version).topics[0].error_code in (0, ErrorCode.LEADER_NOT_AVAILABLE)
    assert ask(fresh, version).topics[0].error_code == 0
    _check_metadata_extras(ask, world, version)


def _check_metadata_extras(ask: Ask, world: World, version: int) -> None:
    if version >= 8:
        request = MetadataRequest([MetadataRequestTopic(name=world.topic)], True, version <= 10, True)
        response = ask(request, version)
        assert response.topics[0].topic_authorized_operations > 0
        assert (response.cluster_authorized_operations > 0) == (version <= 10)
    if version >= 10:
        ids = [MetadataRequestTopic(topic_id, None) for topic_id in (world.topic_id, world.missing_id)]
        found, absent = ask(MetadataRequest(ids), version).topics
        assert (found.error_code, found.name) == (0, world.topic)
        # Names could not be null before version 12.
        assert (absent.error_code, absent.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None if version >= 12 else "")


def check_api_versions(ask: Ask, _: World, version: int) -> None:
    response = ask(ApiVersionsRequest("test", "1.0"), version)
    assert response.error_code == 0
    # There is no subscription to clients' metrics here, so clients are not advertised its API.
    listed = {key: versions for key, versions in ADVERTISED.items() if key not in TELEMETRY}
    assert {row.api_key: (row.min_version, row.max_version) for row in response.api_keys} == listed
    if version >= 3:
        if version >= 4:
            # Before, features whose lowest level is 0 could not be told of.
            supported = {row.name for row in response.supported_features}
            assert {row.name for row in response.finalized_features} <= supported
        levels = {row.name: row.max_version_level for row in response.finalized_features}
        assert levels["metadata.version"] == 30
        assert levels["group.version"] == 1
        assert response.finalized_features_epoch > 0


def check_create_topics(ask: Ask, world: World, version: int) -> None:
    good, assigned, tuned, twice = (fresh_name() for _ in range(4))
    wanted = [
        CreatableTopic(good, 2, 1),
        CreatableTopic(assigned, -1, -1, [CreatableReplicaAssignment(0, [1])]),
        CreatableTopic(tuned, 1, 1, configs=[CreatableTopicConfig("retention.ms", "60000")]),
        CreatableTopic(world.topic, 1, 1),
        CreatableTopic("not/a/name", 1, 1),
        CreatableTopic(fresh_name(), 0, 1),
        CreatableTopic(fresh_name(), 1, 3),
        CreatableTopic(fresh_name(), 1, 1, configs=[CreatableTopicConfig("no.such.config", "1")]),
        CreatableTopic(fresh_name(), -1, -1, [CreatableReplicaAssignment(0, [77])]),
        CreatableTopic(twice, 1, 1),
        CreatableTopic(twice, 1, 1),
    ]
    expected = [0, 0, 0, 36, 17, 37, 38, 40, 39, 42]
    for validate_only in (True, False):
        response = ask(CreateTopicsRequest(wanted, 5000, validate_only), version)
        results = {row.name: row for row in response.topics}
        assert [results[name].error_code for name in dict.fromkeys(topic.name for topic in wanted)] == expected
        assert all((row.error_message is None) == (row.error_code == 0) for row in results.values())
        if version >= 5:
            assert (results[good].num_partitions, results[good].replication_factor) == (2, 1)
            configs = {row.name: row.value for row in results[tuned].configs}
            assert configs["retention.ms"] == "60000"
            assert len(configs) > 25
        if version >= 7:
            assert (results[good].topic_id == bytes(16)) == validate_only
    if version >= 4:
        defaults = ask(CreateTopicsRequest([CreatableTopic(fresh_name(), -1, -1)], 5000), version)
        assert defaults.topics[0].error_code == 0
    assert ask(CreateTopicsRequest([], 5000), version).topics == ()


def check_delete_topics(ask: Ask, world: World, version: int) -> None:
    by_name = world.new_topic()
    if version < 6:
        response = ask(DeleteTopicsRequest(topic_names=[by_name, world.missing]), version)
        assert [row.name for row in response.responses] == [by_name, world.missing]
        assert [row.error_code for row in response.responses] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert (response.responses[1].error_message is not None) == (version >= 5)
    else:
        by_id = world.new_topic()
        topics = ask(MetadataRequest([MetadataRequestTopic(name=name) for name in (by_name, by_id)]), 12).topics
        ids = {topic.name: topic.topic_id for topic in topics}
        states = [
            DeleteTopicState(by_name, bytes(16)),
            DeleteTopicState(None, ids[by_id]),
            DeleteTopicState(world.missing, bytes(16)),
            DeleteTopicState(None, world.missing_id),
        ]
        response = ask(DeleteTopicsRequest(topics=states, timeout_ms=5000), version)
        results = {(row.name, row.topic_id): row.error_code for row in response.responses}
        assert results == {
            (by_name, ids[by_name]): 0,
            (by_id, ids[by_id]): 0,
            (world.missing, bytes(16)): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            (None, world.missing_id): ErrorCode.UNKNOWN_TOPIC_ID,
        }
    gone = MetadataRequest([MetadataRequestTopic(name=by_name)], allow_auto_topic_creation=False)
    assert ask(gone, 9).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def check_create_partitions(ask: Ask, world: World, version: int) -> None:
    topic, assigned = world.new_topic(), world.new_topic()
    wanted = [
        CreatePartitionsTopic(topic, 3, None),
        CreatePartitionsTopic(assigned, 2, [CreatePartitionsAssignment([1])]),
        CreatePartitionsTopic(world.missing, 3, None),
        CreatePartitionsTopic(world.topic, 1, None),
    ]
    expected = [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PARTITIONS]
    for validate_only in (True, False):
        response = ask(CreatePartitionsRequest(wanted, 5000, validate_only), version)
        results = {row.name: row for row in response.results}
        assert [results[row.name].error_code for row in wanted] == expected
        assert results[world.topic].error_message
        found = ask(MetadataRequest([MetadataRequestTopic(name=topic)]), 9).topics[0]
        assert len(found.partitions) == (1 if validate_only else 3)


def check_describe_configs(ask: Ask, world: World, version: int) -> None:
    resources = [
        DescribeConfigsResource(TOPIC, world.topic, None),
        DescribeConfigsResource(TOPIC, world.topic, ["retention.ms", "no.such.config"]),
        DescribeConfigsResource(TOPIC, world.missing, None),
        DescribeConfigsResource(BROKER, "1", None),
        DescribeConfigsResource(BROKER, "", None),
        DescribeConfigsResource(77, "x", None),
    ]
    response = ask(DescribeConfigsRequest(resources, True, version >= 3), version)
    everything, one, absent, broker, cluster, unknown = response.results
    configs = {row.name: row for row in everything.configs}
    assert configs["max.message.bytes"].value == "2000000"
    assert [link.source for link in configs["max.message.bytes"].synonyms][:1] == [1]
    assert configs["retention.ms"].config_source == 5
    assert [row.name for row in one.configs] == ["retention.ms"]
    if version >= 3:
        assert configs["retention.ms"].config_type == 5
        assert configs["retention.ms"].documentation
    assert absent.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert {"node.id", "log.dirs", "listeners"} <= {row.name for row in broker.configs}
    assert (cluster.error_code, unknown.error_code) == (0, ErrorCode.INVALID_REQUEST)


def check_alter_configs(ask: Ask, world: World, version: int) -> None:
    topic = world.new_topic(configs={"retention.ms": "1000000"})
    row, resource = alter_configs.AlterableConfig, alter_configs.AlterConfigsResource
    resources = [
        resource(TOPIC, topic, [row("segment.bytes", "2000000")]),
        resource(TOPIC, world.missing, [row("segment.bytes", "2000000")]),
        resource(TOPIC, world.topic, [row("no.such.config", "1")]),
        resource(TOPIC, world.topic, [row("retention.ms", "soon")]),
    ]
    for validate_only in (True, False):
        response = ask(alter_configs.AlterConfigsRequest(resources, validate_only), version)
        assert [answer.error_code for answer in response.responses] == [0, 3, 40, 40]
        assert _overridden(ask, topic) == ({"retention.ms"} if validate_only else {"segment.bytes"})


def check_incremental_alter_configs(ask: Ask, world: World, version: int) -> None:
    topic = world.new_topic(configs={"retention.ms": "1000000"})
    row, resource = incremental_alter_configs.AlterableConfig, incremental_alter_configs.AlterConfigsResource
    resources = [
        resource(
            TOPIC,
            topic,
            [
                row("segment.bytes", SET, "2000000"),
                row("retention.ms", DELETE, None),
                row("cleanup.policy", APPEND, "compact"),
            ],
        ),
        resource(TOPIC, world.missing, [row("segment.bytes", SET, "2000000")]),
        resource(TOPIC, world.topic, [row("segment.bytes", APPEND, "2000000")]),
        resource(TOPIC, world.topic, [row("segment.bytes", 9, "2000000")]),
    ]
    for validate_only in (True, False):
        response = ask(incremental_alter_configs.IncrementalAlterConfigsRequest(resources, validate_only), version)
        codes = [answer.error_code for answer in response.responses]
        assert codes[:2] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert set(codes[2:]) <= {ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST}
        expected = {"retention.ms"} if validate_only else {"segment.bytes", "cleanup.policy"}
        assert _overridden(ask, topic) == expected


def _overridden(ask: Ask, topic: str) -> set[str]:
    response = ask(DescribeConfigsRequest([DescribeConfigsResource(TOPIC, topic, None)]), 4)
    return {row.name for row in response.results[0].configs if row.config_source == 1}


def check_describe_log_dirs(ask: Ask, world: World, version: int) -> None:
    one = DescribeLogDirsRequest(
        [DescribableLogDirTopic(world.topic, [0, 9]), DescribableLogDirTopic(world.missing, [0])]
    )
    for request, partitions in ((DescribeLogDirsRequest(None), {0, 1}), (one, {0})):
        (directory,) = ask(request, version).results
        assert directory.log_dir == str(world.cluster.data_dir)
        topics = {topic.name: topic.partitions for topic in directory.topics}
        assert {row.partition_index for row in topics[world.topic]} == partitions
        assert world.missing not in topics
        assert next(row for row in topics[world.topic] if row.partition_index == 0).partition_size > 61
        if version >= 4:
            assert 0 < directory.usable_bytes <= directory.total_bytes
    (nothing,) = ask(DescribeLogDirsRequest(()), version).results
    assert nothing.topics == ()


def check_alter_replica_log_dirs(ask: Ask, world: World, version: int) -> None:
    here = str(world.cluster.data_dir)
    topics = [AlterReplicaLogDirTopic(world.topic, [0, 9]), AlterReplicaLogDirTopic(world.missing, [0])]
    request = AlterReplicaLogDirsRequest([AlterReplicaLogDir(here, topics)])
    found, missing = ask(request, version).results
    assert [(row.partition_index, row.error_code) for row in found.partitions] == [(0, 0), (9, 3)]
    assert (found.topic_name, missing.topic_name) == (world.topic, world.missing)
    assert [row.error_code for row in missing.partitions] == [3]
    elsewhere = AlterReplicaLogDirsRequest([AlterReplicaLogDir(here + "-not", topics[:1])])
    assert {row.error_code for row in ask(elsewhere, version).results[0].partitions} == {57}


def check_describe_cluster(ask: Ask, world: World, version: int) -> None:
    for operations in (False, True):
        response = ask(DescribeClusterRequest(operations, include_fenced_brokers=version >= 2), version)
        assert (response.error_code, response.error_message, response.controller_id) == (0, None, 1)
        assert [f"{row.host}:{row.port}" for row in response.brokers] == [world.cluster.bootstrap_servers]
        assert (response.cluster_authorized_operations == NOT_ASKED) == (not operations)
    if version >= 1:
        controllers = ask(DescribeClusterRequest(endpoint_type=2), version)
        assert controllers.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


def check_list_config_resources(ask: Ask, world: World, version: int) -> None:
    if version == 0:
        assert ask(ListConfigResourcesRequest(), version).error_code == 0
        return
    every = ask(ListConfigResourcesRequest(()), version)
    assert {(TOPIC, world.topic), (BROKER, "1")} <= {
        (row.resource_type, row.resource_name) for row in every.config_resources
    }
    topics = ask(ListConfigResourcesRequest([TOPIC]), version)
    assert {row.resource_type for row in topics.config_resources} == {TOPIC}
    assert ask(ListConfigResourcesRequest([CLIENT_METRICS]), version).config_resources == ()
    assert ask(ListConfigResourcesRequest([77]), version).error_code == ErrorCode.UNSUPPORTED_VERSION


def check_describe_topic_partitions(ask: Ask, world: World, version: int) -> None:
    names = [TopicRequest(world.topic), TopicRequest(world.missing)]
    response = ask(DescribeTopicPartitionsRequest(names), version)
    topics = {topic.name: topic for topic in response.topics}
    assert topics[world.topic].topic_id == world.topic_id
    assert [row.partition_index for row in topics[world.topic].partitions] == [0, 1]
    assert topics[world.missing].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert response.next_cursor is None
    page = ask(DescribeTopicPartitionsRequest([TopicRequest(world.topic)], 1), version)
    assert page.next_cursor == Cursor(world.topic, 1)
    rest = ask(DescribeTopicPartitionsRequest([TopicRequest(world.topic)], 1, page.next_cursor), version)
    assert [row.partition_index for row in rest.topics[0].partitions] == [1]
    assert rest.next_cursor is None
    assert ask(DescribeTopicPartitionsRequest(()), version).topics


def check_restore_topics(ask: Ask, world: World, version: int) -> None:
    name, topic_id = fresh_name(), uuid.uuid4().bytes
    plain = RestorableTopic(name, topic_id, 1, [RestorablePartition(0, 0)], [])
    response = ask(RestoreTopicsRequest([plain, plain._replace(name=world.topic)]), version)
    assert (response.error_code, response.error_message) == (0, None)
    # Only tiered topics come back, and this broker has no tier.
    assert [row.error_code for row in response.topics] == [ErrorCode.INVALID_CONFIG, ErrorCode.TOPIC_ALREADY_EXISTS]
    taken = ask(RestoreTopicsRequest([plain._replace(topic_id=world.topic_id)]), version).topics[0]
    assert taken.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    tiered = plain._replace(configs=[RestorableTopicConfig("remote.storage.enable", "true")])
    assert ask(RestoreTopicsRequest([tiered]), version).topics[0].error_code == ErrorCode.INVALID_CONFIG


def check_alter_link(ask: Ask, world: World, version: int) -> None:
    absent = ask(AlterLinkRequest(fresh_name(), LinkAction.PAUSE, None), version)
    assert absent.error_code == ErrorCode.RESOURCE_NOT_FOUND
    here = [AlterableLinkConfig("bootstrap.servers", world.cluster.bootstrap_servers)]
    refused = ask(AlterLinkRequest(fresh_name(), LinkAction.CREATE, ["x"], None, here), version)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert "this cluster itself" in refused.error_message


def check_describe_links(ask: Ask, _: World, version: int) -> None:
    response = ask(DescribeLinksRequest(None), version)
    assert (response.error_code, response.error_message, response.links) == (0, None, ())
    assert response.cluster_id


CHECKS = {
    "alter_link": check_alter_link,
    "describe_links": check_describe_links,
    "restore_topics": check_restore_topics,
    "metadata": check_metadata,
    "api_versions": check_api_versions,
    "create_topics": check_create_topics,
    "delete_topics": check_delete_topics,
    "create_partitions": check_create_partitions,
    "describe_configs": check_describe_configs,
    "alter_configs": check_alter_configs,
    "incremental_alter_configs": check_incremental_alter_configs,
    "alter_replica_log_dirs": check_alter_replica_log_dirs,
    "describe_log_dirs": check_describe_log_dirs,
    "describe_cluster": check_describe_cluster,
    "list_config_resources": check_list_config_resources,
    "describe_topic_partitions": check_describe_topic_partitions,
}
