"""A topic that names a group: its producers are throttled while the group lags, and only then."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from penstock.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from support.node_thread import NodeThread
from support.wire_client import WireClient, batch_of, produce_request

FAST = {"penstock.backpressure.check.interval.ms": "50", "penstock.backpressure.throttle.max.ms": "400"}


def throttle_ms(address: str, topic: str) -> int:
    """The throttle time of one more record, on a connection that is not muted."""
    with WireClient(address) as client:
        response = client.call(produce_request(topic, batch_of(b"x")), 9)
    assert response.responses[0].partition_responses[0].error_code == 0
    found: int = response.throttle_time_ms
    return found


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def commit(client: WireClient, offset: int) -> None:
    row = OffsetCommitRequestTopic("slow", partitions=[OffsetCommitRequestPartition(0, offset)])
    request = OffsetCommitRequest("readers", -1, "", topics=[row])

    def is_done() -> bool:
        client.call(FindCoordinatorRequest("readers", 0), 3)
        return bool(client.call(request, 8).topics[0].partitions[0].error_code == 0)

    wait_for(is_done)


def test_producers_wait_for_a_group_that_lags(tmp_path: Path) -> None:
    with NodeThread(tmp_path, FAST) as node, WireClient(node.address) as client:
        configs = [
            CreatableTopicConfig("penstock.backpressure.groups", "readers,unheard-of"),
            CreatableTopicConfig("penstock.backpressure.lag.max", "10"),
        ]
        client.call(CreateTopicsRequest([CreatableTopic("slow", 1, 1, (), configs), CreatableTopic("free", 1, 1)]), 7)
        for _ in range(30):
            client.produce("slow", batch_of(b"x"))
        # No group has committed anything, so none is known to lag.
        assert throttle_ms(node.address, "slow") == 0
        commit(client, 5)
        wait_for(lambda: throttle_ms(node.address, "slow") == 400)
        assert throttle_ms(node.address, "free") == 0
        assert node.look(lambda one: one._broker._backpressure.throttled_ms) >= 400  # type: ignore[union-attr]
        end = client.list_offset("slow", -1).offset
        commit(client, end)
        wait_for(lambda: throttle_ms(node.address, "slow") == 0)
