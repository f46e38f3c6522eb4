"""A restore waits until its partitions are led, also by brokers that have not heard of them yet."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.cli.failures import CommandFailure
from penstock.cli.tier import restore
from penstock.cli.tier.restore import Restore
from penstock.cli.tier.restore_plan import PartitionPlan, TopicPlan
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import ZERO_UUID, TopicPartition
from penstock.storage.tier.layout import PartitionLocation, TopicDocument
from penstock.wire.messages.describe_cluster import DescribeClusterResponse
from penstock.wire.messages.metadata import MetadataRequest, MetadataResponse

PLAN = TopicPlan(
    TopicDocument("cluster", "orders", ZERO_UUID, 1, 1, {}),
    [PartitionPlan(PartitionLocation("cluster", "orders", ZERO_UUID, 0), restored_offset=40)],
    [],
    [],
)


class Cluster:
    """Answers with these errors first, then with where the partition ends."""

    def __init__(self, errors: list[Exception], end: int = 40) -> None:
        self.errors = errors
        self.end = end

    def ask(self, request: Any) -> Any:
        is_metadata = isinstance(request, MetadataRequest)
        return MetadataResponse() if is_metadata else DescribeClusterResponse(cluster_id="new")

    def offsets(self, places: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if self.errors:
            raise self.errors.pop(0)
        return dict.fromkeys(places, self.end)


def waiting(cluster: Cluster, timeout_s: float = 60) -> list[str]:
    told: list[str] = []
    Restore(cast(Any, cluster), cast(Any, SimpleNamespace()), [PLAN], told.append).await_leaders(timeout_s)
    return told


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "PAUSE_S", 0.001)


def unknown() -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "orders")


def test_brokers_that_have_not_heard_of_it_or_do_not_lead_it_are_asked_again() -> None:
    assert waiting(Cluster([unknown(), TimeoutError("no leader"), unknown()])) == ["1 of 1 partition has a leader"]


def test_lasting_failures_are_reported() -> None:
    with pytest.raises(CommandFailure, match="did not start in time"):
        waiting(Cluster([unknown()] * 10), timeout_s=0)
    with pytest.raises(ApiError):
        waiting(Cluster([ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "orders")]))
    with pytest.raises(CommandFailure, match="ends at 30, before 40"):
        waiting(Cluster([], end=30))
