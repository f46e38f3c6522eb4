"""What a caller may do with subjects, by what brokers report about its topics."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.gateway.callers.rights import NAMES_BYTES_PER_REQUEST, NAMES_PER_REQUEST, BrokerRights
from penstock.gateway.kafka.broker_requests import BrokerWire
from penstock.gateway.registry.rights import Right
from penstock.gateway.web.problem import Problem
from penstock.model.access import Operation
from penstock.model.errors import ErrorCode
from penstock.wire.messages.describe_cluster import DescribeClusterRequest
from penstock.wire.messages.metadata import MetadataResponseTopic

EVERYTHING = sum(1 << operation for operation in (Operation.DESCRIBE, Operation.WRITE, Operation.DELETE))


class Brokers:
    """Grant everything on topics with the prefix `own.`, and nothing on the cluster."""

    def __init__(self) -> None:
        self.requests: list[list[str]] = []

    async def ask(self, request: Any) -> Any:
        if isinstance(request, DescribeClusterRequest):
            return SimpleNamespace(cluster_authorized_operations=0)
        names = [topic.name for topic in request.topics]
        self.requests.append(names)
        return SimpleNamespace(topics=[self._topic(name) for name in names])

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name.startswith("own."):
            return MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name, topic_authorized_operations=EVERYTHING
            )
        return MetadataResponseTopic(
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, topic_authorized_operations=0
        )


def rights_of(brokers: Brokers) -> BrokerRights:
    return BrokerRights("User:alice", cast(BrokerWire, brokers))


def test_rights_on_many_subjects_are_requested_in_pieces() -> None:
    brokers = Brokers()
    short = [f"own.{number}-value" for number in range(2 * NAMES_PER_REQUEST + 1)]
    long = [f"own.{number}".ljust(900, "x") + "-value" for number in range(1_100)]
    others = ["theirs-value"]
    assert asyncio.run(rights_of(brokers).readable([*short, *long, *others])) == {*short, *long}
    assert sum(len(names) for names in brokers.requests) == len(short) + len(long) + len(others)
    assert len(brokers.requests) > 3
    for names in brokers.requests:
        assert len(names) <= NAMES_PER_REQUEST
        assert sum(map(len, names)) <= NAMES_BYTES_PER_REQUEST


def test_no_subjects_take_no_request() -> None:
    brokers = Brokers()
    assert asyncio.run(rights_of(brokers).readable(["Order", "Customer"])) == {"Order", "Customer"}
    assert not brokers.requests


@pytest.mark.parametrize("name", ["own." + "x" * 246, "own.a b", "own./"])
def test_registering_for_a_topic_that_cannot_exist_takes_the_right_to_alter_the_cluster(name: str) -> None:
    with pytest.raises(Problem) as refused:
        asyncio.run(rights_of(Brokers()).check(f"{name}-value", Right.REGISTER))
    assert refused.value.status == 403
    assert "ALTER on the cluster" in refused.value.message


def test_registering_takes_the_right_to_write_to_the_topic() -> None:
    asyncio.run(rights_of(Brokers()).check("own." + "x" * 245 + "-value", Right.REGISTER))
    with pytest.raises(Problem):
        asyncio.run(rights_of(Brokers()).check("theirs-value", Right.REGISTER))
