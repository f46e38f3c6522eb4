"""A quota on requests counts what a client costs, whichever API it calls, and whatever it claims to be."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from access_rights import SEEN, Entry
from matrix import ALICE, Matrix, secured, sign_in

from penstock.model.access import Operation, Permission, ResourceType
from penstock.model.errors import ErrorCode
from penstock.testing import Cluster
from penstock.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.describe_hot_keys import DescribeHotKeysRequest
from penstock.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from penstock.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest
from penstock.wire.messages.take_share_records import TakeShareRecordsRequest
from support.kafka_broker import free_port
from support.wire_client import WireClient, fetch_request

PATIENCE_S = 60.0
RIGHTS: list[Entry] = [
    (ResourceType.TOPIC, Operation.CREATE, Permission.ALLOW),
    (ResourceType.TOPIC, Operation.READ, Permission.ALLOW),
    (ResourceType.GROUP, Operation.DESCRIBE, Permission.ALLOW),
]
GROUPS = [OffsetFetchRequestGroup(f"{SEEN}-{number}", topics=None) for number in range(100)]
TOPICS = [CreatableTopic(f"{SEEN}-{number}", 1, 1) for number in range(20)]
PARTITIONS = [OffsetForLeaderPartition(0, -1, 0)] * 500

# Requests that were free of charge once: their work is done in tasks or by the controller, or brokers send them.
FLOODS: dict[str, tuple[Any, int]] = {
    "in a task": (OffsetFetchRequest(groups=GROUPS), 9),
    "by the controller": (CreateTopicsRequest(TOPICS, 5_000, True), 7),
    "as a follower": (fetch_request(SEEN, 0)._replace(replica_id=1), 12),
    "as a broker": (OffsetForLeaderEpochRequest(-2, [OffsetForLeaderTopic(SEEN, PARTITIONS)]), 4),
    "about versions": (ApiVersionsRequest("flood", "1"), 3),
    "by another process": (DescribeHotKeysRequest(SEEN, None, 10, 1), 0),
}


@pytest.fixture(scope="module")
def matrix() -> Iterator[Matrix]:
    port, controller_port = free_port(), free_port()
    with (
        Cluster(secured(port, controller_port) | {"group.share.max.share.sessions": "8"}),
        Matrix(f"127.0.0.1:{port}", f"127.0.0.1:{controller_port}") as found,
    ):
        found.grant(RIGHTS)
        yield found


def limit_requests(matrix: Matrix, user: str | None, percentage: float | None) -> None:
    operation = OpData("request_percentage", percentage or 0.0, percentage is None)
    entry = AlterClientQuotasRequestEntryData([EntityData("user", user)], [operation])
    (row,) = matrix.admin.call(AlterClientQuotasRequest([entry]), 1).entries
    assert row.error_code == 0, row.error_message


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_is_throttled_however_it_is_sent(matrix: Matrix, flood: str) -> None:
    request, version = FLOODS[flood]
    # So little that any work exceeds it, once the windows before the first request are used up.
    limit_requests(matrix, ALICE, 0.01)
    try:
        with sign_in(matrix.address, ALICE) as alice:
            deadline = time.monotonic() + PATIENCE_S
            while not alice.call(request, version).throttle_time_ms:
                assert time.monotonic() < deadline, "the flood was never throttled"
    finally:
        limit_requests(matrix, ALICE, None)


def test_no_client_is_throttled_by_requests_of_others_before_they_sign_in(matrix: Matrix) -> None:
    # For everybody who has no quota of its own, one who has not signed in among them.
    limit_requests(matrix, None, 0.01)
    try:
        with WireClient(matrix.address) as stranger:
            for _ in range(200):
                assert stranger.call(ApiVersionsRequest("stranger", "1"), 3).throttle_time_ms == 0
            assert stranger.call(SaslHandshakeRequest("PLAIN"), 1).error_code == 0
    finally:
        limit_requests(matrix, None, None)


def test_who_takes_records_as_many_members_leaves_room_for_others(matrix: Matrix) -> None:
    matrix.grant([*RIGHTS, (ResourceType.GROUP, Operation.READ, Permission.ALLOW)])

    def take(client: WireClient, member: str) -> int:
        request = TakeShareRecordsRequest(f"{SEEN}-share", member, matrix.topic_ids[SEEN], [0], 0, 1000, 0)
        return int(client.call(request, 0).error_code)

    full = ErrorCode.SHARE_SESSION_LIMIT_REACHED
    with sign_in(matrix.address, ALICE) as alice:
        assert [take(alice, f"alice-{number}") for number in range(8)] == [0] * 4 + [full] * 4
    assert take(matrix.admin, "admin") == 0
