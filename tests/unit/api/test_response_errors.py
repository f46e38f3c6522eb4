"""Errors are found wherever a response has them."""

from __future__ import annotations

import pytest

from penstock.api.response_errors import error_finder
from penstock.wire.apis import APIS, response_class
from penstock.wire.messages.describe_cluster import DescribeClusterResponse
from penstock.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from penstock.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse


def found_in(response: object) -> list[int]:
    finder = error_finder(type(response))
    assert finder is not None
    codes: list[int] = []
    finder(response, codes.append)
    return codes


def test_errors_of_partitions_are_found() -> None:
    rows = [PartitionProduceResponse(0), PartitionProduceResponse(1, 10), PartitionProduceResponse(2, 6)]
    assert found_in(ProduceResponse([TopicProduceResponse("orders", partition_responses=rows)])) == [10, 6]


def test_errors_at_the_top_are_found_too() -> None:
    topics = [FetchableTopicResponse("orders", partitions=[PartitionData(0, 3)])]
    assert found_in(FetchResponse(error_code=70, responses=topics)) == [70, 3]
    assert found_in(DescribeClusterResponse(error_code=41)) == [41]


def test_a_response_without_errors_has_none() -> None:
    assert (
        found_in(ProduceResponse([TopicProduceResponse("orders", partition_responses=[PartitionProduceResponse()])]))
        == []
    )


@pytest.mark.parametrize("key", sorted(APIS))
def test_every_response_can_be_looked_through(key: int) -> None:
    cls = response_class(key)
    finder = error_finder(cls)
    if finder is None:
        assert "error_code" not in cls._fields
    else:
        finder(cls(), pytest.fail)
