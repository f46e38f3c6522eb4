"""Committed offsets over the wire: what is kept, what is refused, what goes away."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from penstock.model.errors import ErrorCode
from penstock.testing import Cluster
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from support.wire_client import WireClient

SOAK_S = float(os.environ.get("GROUP_SOAK_SECONDS", "0"))
PARTITIONS = 3
COMMIT_VERSION = 8
FETCH_VERSION = 8
EXPIRING_COMMIT_VERSION = 2
SUBSCRIPTION_START = bytes.fromhex("0000 00000001")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A broker that looks for old offsets all the time."""
    settings = {
        "offsets.retention.check.interval.ms": "100",
        "offsets.topic.num.partitions": "3",
        "group.min.session.timeout.ms": "1000",
        "offset.metadata.max.bytes": "100",
    }
    with Cluster(settings) as running:
        yield running


@pytest.fixture
def client(cluster: Cluster) -> Iterator[WireClient]:
    with WireClient(cluster.bootstrap_servers) as wire:
        # The offsets topic is created when a client first looks for a coordinator.
        wire.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["any"]), 4)
        yield wire


@pytest.fixture
def topic(cluster: Cluster) -> str:
    return cluster.create_topic(partitions=PARTITIONS)


def commit(
    client: WireClient,
    group: str,
    topic: str,
    offsets: dict[int, int],
    metadata: str | None = "",
    *,
    version: int = COMMIT_VERSION,
    **fields: Any,
) -> dict[int, int]:
    """Commit, and return the error code of each partition."""
    rows = [OffsetCommitRequestPartition(index, offset, 7, metadata) for index, offset in offsets.items()]
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(topic, partitions=rows)], **fields)
    (answer,) = client.call(request, version).topics
    return {row.partition_index: row.error_code for row in answer.partitions}


def fetch(client: WireClient, group: str, topic: str | None = None) -> dict[tuple[str, int], tuple[int, int, str]]:
    """A group's offsets with leader epochs and metadata; of all its topics unless one is named."""
    topics = None if topic is None else [OffsetFetchRequestTopics(topic, partition_indexes=list(range(PARTITIONS)))]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=topics)])
    (answer,) = client.call(request, FETCH_VERSION).groups
    assert answer.error_code == 0
    return {
        (each.name, row.partition_index): (row.committed_offset, row.committed_leader_epoch, row.metadata)
        for each in answer.topics
        for row in each.partitions
    }


def group_ids(client: WireClient) -> set[str]:
    return {row.group_id for row in client.call(ListGroupsRequest(), 4).groups}


def gone_within(seconds: float, client: WireClient, group: str) -> bool:
    deadline = time.monotonic() + seconds
    while fetch(client, group) or group in group_ids(client):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def join(client: WireClient, group: str, topic: str) -> tuple[str, int]:
    """Be the only member of a group, subscribed to a topic; the member id and the generation."""
    subscription = SUBSCRIPTION_START + len(topic).to_bytes(2, "big") + topic.encode() + bytes(4)
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", subscription)],
    )
    joined = client.call(request, 3)
    assert joined.error_code == 0
    assignments = [SyncGroupRequestAssignment(joined.member_id, b"")]
    sync = SyncGroupRequest(group, joined.generation_id, joined.member_id, assignments=assignments)
    assert client.call(sync, 3).error_code == 0
    return joined.member_id, joined.generation_id


def test_metadata_and_leader_epochs_are_kept_over_a_kill(cluster: Cluster, topic: str) -> None:
    notes = {0: "", 1: "größe ∞", 2: "x" * 100}
    with WireClient(cluster.bootstrap_servers) as client:
        client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["noted"]), 4)
        for partition, note in notes.items():
            assert commit(client, "noted", topic, {partition: 10 + partition}, note) == {partition: 0}
    cluster.kill()
    cluster.start()
    with WireClient(cluster.bootstrap_servers) as client:
        found = fetch(client, "noted", topic)
    assert found == {(topic, partition): (10 + partition, 7, note) for partition, note in notes.items()}


def test_bad_commits_are_refused_partition_by_partition(client: WireClient, topic: str) -> None:
    assert commit(client, "bad", topic, {0: 1, PARTITIONS: 1}) == {0: 0, PARTITIONS: 3}
    assert commit(client, "bad", topic, {1: 1}, "x" * 101) == {1: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert commit(client, "bad", "no-such-topic", {0: 1}) == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert commit(client, "", topic, {0: 1}) == {0: ErrorCode.INVALID_GROUP_ID}
    assert fetch(client, "bad") == {(topic, 0): (1, 7, "")}


def test_many_groups_are_fetched_at_once(client: WireClient, topic: str) -> None:
    groups = [f"batch-{number}" for number in range(20)]
    for number, group in enumerate(groups):
        commit(client, group, topic, {0: number})
    wanted = [OffsetFetchRequestTopics(topic, partition_indexes=[0, 1])]
    request = OffsetFetchRequest(
        groups=[*(OffsetFetchRequestGroup(group, topics=wanted) for group in groups), OffsetFetchRequestGroup("nobody")]
    )
    answers = client.call(request, FETCH_VERSION).groups
    assert [answer.group_id for answer in answers] == [*groups, "nobody"]
    for number, answer in enumerate(answers[:-1]):
        assert [row.committed_offset for row in answer.topics[0].partitions] == [number, -1]
    assert (answers[-1].error_code, list(answers[-1].topics)) == (0, [])


def test_the_old_form_of_a_fetch_knows_all_topics_too(client: WireClient, topic: str) -> None:
    commit(client, "old-form", topic, {0: 4, 2: 6}, "note")
    one = OffsetFetchRequest(group_id="old-form", topics=[OffsetFetchRequestTopic(topic, [0, 1])])
    assert [row.committed_offset for row in client.call(one, 1).topics[0].partitions] == [4, -1]
    everything = client.call(OffsetFetchRequest(group_id="old-form", topics=None), 7)
    assert {row.partition_index: row.metadata for row in everything.topics[0].partitions} == {0: "note", 2: "note"}


def test_a_stale_member_cannot_commit(client: WireClient, topic: str) -> None:
    member, generation = join(client, "strict", topic)
    mine = {"member_id": member, "generation_id_or_member_epoch": generation}
    assert commit(client, "strict", topic, {0: 5}, **mine) == {0: 0}
    stale = {**mine, "generation_id_or_member_epoch": generation - 1}
    assert commit(client, "strict", topic, {0: 1}, **stale) == {0: ErrorCode.ILLEGAL_GENERATION}
    stranger = {**mine, "member_id": "somebody"}
    assert commit(client, "strict", topic, {0: 1}, **stranger) == {0: ErrorCode.UNKNOWN_MEMBER_ID}
    assert commit(client, "strict", topic, {0: 1}) == {0: ErrorCode.UNKNOWN_MEMBER_ID}
    assert fetch(client, "strict") == {(topic, 0): (5, 7, "")}


def test_offsets_of_an_empty_group_expire_and_take_the_group_along(client: WireClient, topic: str) -> None:
    # Only the old version of a commit can ask for a retention of less than the broker's least, which is a minute.
    for version, retention_ms in ((EXPIRING_COMMIT_VERSION, 300), (COMMIT_VERSION, -1)):
        group = f"expiring-{version}"
        commit(client, group, topic, {0: 5, 1: 6}, version=version, retention_time_ms=retention_ms)
        assert fetch(client, group, topic)[topic, 0][0] == 5
    assert gone_within(5, client, f"expiring-{EXPIRING_COMMIT_VERSION}")
    assert fetch(client, f"expiring-{COMMIT_VERSION}", topic)[topic, 0][0] == 5


def test_offsets_in_use_do_not_expire(client: WireClient, topic: str) -> None:
    member, generation = join(client, "in-use", topic)
    mine = {"member_id": member, "generation_id_or_member_epoch": generation}
    commit(client, "in-use", topic, {0: 5}, version=EXPIRING_COMMIT_VERSION, retention_time_ms=1, **mine)
    time.sleep(0.5)
    assert fetch(client, "in-use") == {(topic, 0): (5, -1, "")}


@pytest.mark.slow
@pytest.mark.skipif(not SOAK_S, reason="takes more than a minute: set GROUP_SOAK_SECONDS")
def test_the_brokers_retention_counts_in_minutes() -> None:
    settings = {"offsets.retention.check.interval.ms": "100", "offsets.retention.minutes": "1"}
    with Cluster(settings) as short_lived, WireClient(short_lived.bootstrap_servers) as client:
        named = short_lived.create_topic(partitions=PARTITIONS)
        client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["minute"]), 4)
        commit(client, "minute", named, {0: 5})
        started = time.monotonic()
        assert gone_within(70, client, "minute")
        assert time.monotonic() - started > 58


def test_a_deleted_topic_takes_its_offsets_along(client: WireClient, cluster: Cluster, topic: str) -> None:
    kept = cluster.create_topic(partitions=PARTITIONS)
    commit(client, "two-topics", topic, {0: 5})
    commit(client, "two-topics", kept, {0: 6})
    commit(client, "one-topic", topic, {0: 7})
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    admin.delete_topics([topic])[topic].result(10)
    assert fetch(client, "two-topics") == {(kept, 0): (6, 7, "")}
    assert gone_within(5, client, "one-topic")
    cluster.create_topic(topic, partitions=PARTITIONS)
    assert {offset for offset, _, _ in fetch(client, "two-topics", topic).values()} == {-1}


def test_offsets_are_deleted_unless_a_member_reads_the_topic(client: WireClient, cluster: Cluster, topic: str) -> None:
    unread = cluster.create_topic(partitions=PARTITIONS)
    member, generation = join(client, "reader", topic)
    mine = {"member_id": member, "generation_id_or_member_epoch": generation}
    commit(client, "reader", topic, {0: 5}, **mine)
    commit(client, "reader", unread, {0: 6, 1: 7}, **mine)
    partition = [OffsetDeleteRequestPartition(0)]
    request = OffsetDeleteRequest(
        "reader", [OffsetDeleteRequestTopic(topic, partition), OffsetDeleteRequestTopic(unread, partition)]
    )
    answer = client.call(request, 0)
    assert answer.error_code == 0
    assert [each.partitions[0].error_code for each in answer.topics] == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0]
    assert fetch(client, "reader") == {(topic, 0): (5, 7, ""), (unread, 1): (7, 7, "")}
    assert client.call(OffsetDeleteRequest("nobody", []), 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_groups_are_deleted_one_by_one(client: WireClient, topic: str) -> None:
    commit(client, "deleted", topic, {0: 5})
    join(client, "lively", topic)
    answer = client.call(DeleteGroupsRequest(["deleted", "lively", "nobody"]), 2)
    assert {row.group_id: row.error_code for row in answer.results} == {
        "deleted": 0,
        "lively": ErrorCode.NON_EMPTY_GROUP,
        "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert fetch(client, "deleted") == {}
    assert not {"deleted", "nobody"} & group_ids(client)
