"""Dead letters of a tenant's share group go to the tenant's own topic, and to no other's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic
from tenant_clients import ACCESS_LISTS, TIMEOUT_S, Commands, Tenant, eventually, find_coordinators, produce

from penstock.client.cluster import ClusterClient
from penstock.client.settings import read_settings
from penstock.core.share.acknowledgements import AckType
from penstock.model.errors import ErrorCode
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.settle_share_record import SettleShareRecordRequest
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from penstock.wire.messages.take_share_records import TakeShareRecordsRequest
from support.secure_cluster import SecureCluster

GROUP_CONFIGS, SET = 32, 0
TAKES_LETTERS = {"errors.deadletterqueue.group.enable": "true"}
# Names of topics for dead letters begin with their tenant's.
SETTINGS = {**ACCESS_LISTS, "errors.deadletterqueue.topic.name.prefix": ""}


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    directory = tmp_path_factory.mktemp("dead-letters-of-tenants")
    with SecureCluster(directory, settings=SETTINGS) as cluster:
        find_coordinators(cluster)
        yield Commands(cluster, directory)


def with_topics(commands: Commands, name: str) -> Tenant:
    tenant = commands.tenant(name)
    admin = AdminClient(tenant.settings)
    topics = [NewTopic(f"{name}.jobs", 1, 1), NewTopic(f"{name}.dlq", 1, 1, config=TAKES_LETTERS)]
    for future in admin.create_topics(topics).values():
        future.result(TIMEOUT_S)
    return tenant


def alter(client: ClusterClient, group: str, topic: str) -> Any:
    settings = {
        "errors.deadletterqueue.topic.name": topic,
        "errors.deadletterqueue.copy.record.enable": "true",
        "share.auto.offset.reset": "earliest",
    }
    rows = [AlterableConfig(name, SET, value) for name, value in settings.items()]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(GROUP_CONFIGS, group, rows)])
    return client.ask(request).responses[0]


def reject_first(client: ClusterClient, group: str, topic: str) -> None:
    """Take the first record of a topic for a group, and reject it."""
    (found,) = client.ask(MetadataRequest([MetadataRequestTopic(name=topic)], False)).topics
    eventually(lambda: client.ask(ShareGroupHeartbeatRequest(group, "m", 0, None, [topic])).error_code, lambda e: not e)

    wanted = TakeShareRecordsRequest(group, "m", found.topic_id, [0], 1, 1_000_000, 500)
    rows = eventually(lambda: client.ask(wanted).partitions, lambda rows: bool(rows and rows[0].acquired_records))
    held = rows[0].acquired_records[0]
    settled = client.ask(
        SettleShareRecordRequest(
            group, "m", found.topic_id, 0, held.first_offset, held.delivery_count, int(AckType.REJECT)
        )
    )
    assert settled.error_code == 0, settled.error_message


def test_dead_letters_go_to_their_tenant_only(commands: Commands) -> None:
    mine, other = with_topics(commands, "mine"), with_topics(commands, "other")
    assert produce(mine.settings, "mine.jobs", 1, size=5) == []
    with ClusterClient(read_settings(mine.settings)) as client:
        for topic in ("other.dlq", "other.nothing", "nobodys"):
            refused = alter(client, "mine.workers", topic)
            assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic
            assert refused.error_message == f"User:mine needs the right WRITE on topic {topic}"
        assert alter(client, "mine.workers", "mine.dlq").error_code == 0
        reject_first(client, "mine.workers", "mine.jobs")
    consumer = Consumer({**mine.settings, "group.id": "mine.letters", "auto.offset.reset": "earliest"})
    consumer.subscribe(["mine.dlq"])
    letter = eventually(lambda: consumer.poll(1.0), lambda found: found is not None and found.error() is None)
    assert letter is not None
    assert letter.value() == b"x" * 5
    consumer.close()
    with ClusterClient(read_settings(other.settings)) as client:
        assert alter(client, "other.workers", "mine.dlq").error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
