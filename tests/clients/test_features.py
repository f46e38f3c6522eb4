"""Levels of features as clients see them: told with their epoch, changed, and acting at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.model.errors import ErrorCode
from penstock.testing import Cluster
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.share_group_describe import ShareGroupDescribeRequest
from penstock.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from penstock.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from support.kafka_tools import kafka_tool
from support.processes import eventually
from support.wire_client import WireClient

PATIENCE_S = 60
UPGRADE, SAFE_DOWNGRADE = 1, 2


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


@pytest.fixture
def wire(cluster: Cluster) -> Iterator[WireClient]:
    with WireClient(cluster.bootstrap_servers) as client:
        yield client


def features(wire: WireClient) -> tuple[int, dict[str, int]]:
    answer: ApiVersionsResponse = wire.call(ApiVersionsRequest("test", "1"), 4)
    return answer.finalized_features_epoch, {row.name: row.max_version_level for row in answer.finalized_features}


def update(wire: WireClient, name: str, level: int, kind: int) -> int:
    code: int = wire.call(
        UpdateFeaturesRequest(10_000, [FeatureUpdateKey(name, level, upgrade_type=kind)]), 2
    ).error_code
    return code


def join(wire: WireClient) -> int:
    request = ConsumerGroupHeartbeatRequest(
        "readers", "member-1", 0, rebalance_timeout_ms=10_000, subscribed_topic_names=["any"], topic_partitions=[]
    )
    code: int = wire.call(request, 1).error_code
    return code


def joined(wire: WireClient) -> bool:
    """Whether a member got in; the first who asks has the coordinator's topic made."""
    wire.call(FindCoordinatorRequest(coordinator_keys=["readers"]), 6)
    return join(wire) == 0


def test_the_epoch_of_levels_rises_with_the_metadata_log(wire: WireClient, cluster: Cluster) -> None:
    before, levels = features(wire)
    assert before > 0
    assert levels["group.version"] == 1
    cluster.create_topic("one")
    after, _ = features(wire)
    assert after > before


def test_the_consumer_protocol_can_be_turned_off_and_on_again(wire: WireClient) -> None:
    assert eventually(lambda: joined(wire), PATIENCE_S)
    before, _ = features(wire)
    assert update(wire, "group.version", 0, SAFE_DOWNGRADE) == 0
    after, levels = features(wire)
    assert after > before
    assert "group.version" not in levels
    assert join(wire) == ErrorCode.UNSUPPORTED_VERSION
    described = wire.call(ConsumerGroupDescribeRequest(["readers"], False), 1).groups[0]
    assert described.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "group.version is 0" in described.error_message
    assert update(wire, "group.version", 1, UPGRADE) == 0
    assert join(wire) == 0


@pytest.mark.parametrize(
    ("feature", "request_", "version"),
    [
        ("share.version", ShareGroupDescribeRequest(["nobody"]), 1),
        ("streams.version", StreamsGroupDescribeRequest(["nobody"]), 0),
    ],
)
def test_kinds_of_groups_can_be_turned_off_and_on_again(
    wire: WireClient, feature: str, request_: Any, version: int
) -> None:
    assert features(wire)[1][feature] == 1
    assert update(wire, feature, 0, SAFE_DOWNGRADE) == 0
    described = wire.call(request_, version).groups[0]
    assert described.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert f"{feature} is 0" in described.error_message
    assert update(wire, feature, 1, UPGRADE) == 0
    assert wire.call(request_, version).groups[0].error_code != ErrorCode.UNSUPPORTED_VERSION


def test_a_level_that_cannot_be_is_refused(wire: WireClient) -> None:
    for name, level, kind in (
        ("group.version", 2, UPGRADE),
        ("kraft.version", 1, UPGRADE),
        ("share.version", 2, UPGRADE),
        ("streams.version", 2, UPGRADE),
    ):
        assert update(wire, name, level, kind) == ErrorCode.INVALID_UPDATE_VERSION


def test_kafkas_tool_shows_and_changes_levels(cluster: Cluster) -> None:
    def tool(*arguments: str) -> str:
        return kafka_tool("kafka-features", "--bootstrap-server", cluster.bootstrap_servers, *arguments).stdout

    shown = tool("describe")
    assert re.search(r"Feature: group\.version.*SupportedMaxVersion: 1.*FinalizedVersionLevel: 1.*Epoch: \d+", shown), (
        shown
    )
    assert re.search(r"Feature: kraft\.version.*SupportedMaxVersion: 1.*FinalizedVersionLevel: [01]", shown), shown
    assert "group.version was downgraded to 0" in tool("downgrade", "--feature", "group.version=0")
    assert re.search(r"Feature: group\.version.*FinalizedVersionLevel: 0", tool("describe"))
