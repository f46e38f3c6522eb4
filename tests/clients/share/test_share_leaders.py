"""A share-partition whose leader goes: the next one knows what was acknowledged, and who asks the old one is told."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock.core.share.state import ShareKey
from penstock.model.errors import ErrorCode
from penstock.testing import Cluster
from penstock.wire.messages import initialize_share_group_state as beginning
from penstock.wire.messages import share_acknowledge
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from support.wire_client import WireClient, batch_of

GROUP, TOPIC = "group", "jobs"
SHARE = 2
ACCEPT = 1
DEADLINE_S = 60.0


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def leader_of(client: WireClient) -> tuple[int, bytes]:
    topic = client.call(MetadataRequest([MetadataRequestTopic(name=TOPIC)]), 12).topics[0]
    return topic.partitions[0].leader_id, topic.topic_id


def begin(client: WireClient, topic_id: bytes) -> None:
    """As the group's coordinator would."""
    key = ShareKey(GROUP, topic_id, 0).coordinator_key
    row = beginning.PartitionData(0, 0, 0)
    request = beginning.InitializeShareGroupStateRequest(GROUP, [beginning.InitializeStateData(topic_id, [row])])

    def is_done() -> bool:
        found = client.call(FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key]), 6).coordinators[0]
        if found.error_code:
            return False
        with WireClient(f"{found.host}:{found.port}") as coordinator:
            return bool(coordinator.call(request, 0).results[0].partitions[0].error_code == 0)

    until(is_done)


def fetch(client: WireClient, topic_id: bytes, member: str) -> Any:
    topics = [FetchTopic(topic_id, [FetchPartition(0)])]
    response = client.call(ShareFetchRequest(GROUP, member, 0, 1_000, 1, 1_000_000, 500, 500, topics=topics), 2)
    assert response.error_code == 0
    return response


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_the_next_leader_continues() -> None:
    with Cluster({"share.coordinator.state.topic.num.partitions": "1"}, nodes=3) as cluster:
        cluster.create_topic(TOPIC)
        with WireClient(cluster.address(1)) as client:
            leader, topic_id = leader_of(client)
            begin(client, topic_id)
        with WireClient(cluster.address(leader)) as client:
            assert client.produce(TOPIC, batch_of([b"x"] * 10)).error_code == 0
            row = fetch(client, topic_id, "one").responses[0].partitions[0]
            assert [tuple(one) for one in row.acquired_records] == [(0, 9, 1)]
            said = [share_acknowledge.AcknowledgementBatch(*one) for one in ((0, 3, [ACCEPT]), (6, 6, [ACCEPT]))]
            topic = share_acknowledge.AcknowledgeTopic(topic_id, [share_acknowledge.AcknowledgePartition(0, said)])
            response = client.call(share_acknowledge.ShareAcknowledgeRequest(GROUP, "one", 1, topics=[topic]), 2)
            assert response.responses[0].partitions[0].error_code == 0
        other = next(node for node in cluster.node_ids if node != leader)
        with WireClient(cluster.address(other)) as client:
            response = fetch(client, topic_id, "two")
            row = response.responses[0].partitions[0]
            assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert row.current_leader.leader_id == leader
            assert [f"{one.host}:{one.port}" for one in response.node_endpoints] == [cluster.address(leader)]
            cluster.kill(leader)
            until(lambda: leader_of(client)[0] not in (leader, -1))
            new_leader = leader_of(client)[0]
        acquired: list[tuple[int, int]] = []
        with WireClient(cluster.address(new_leader)) as client:

            def has_acquired() -> bool:
                response = fetch(client, topic_id, "two")
                rows = response.responses[0].partitions[0].acquired_records if response.responses else ()
                acquired.extend((one.first_offset, one.last_offset) for one in rows)
                return bool(acquired)

            until(has_acquired)
        assert acquired == [(4, 5), (7, 9)]
