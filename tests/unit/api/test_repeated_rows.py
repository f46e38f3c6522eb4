"""What a request names many times is answered once, where the answer is longer than the name."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.api.context import Client, RequestContext
from penstock.api.groups.offset_fetch import _without_repeats
from penstock.api.pieces import PIECES, distinct, in_pieces
from penstock.wire.apis import ApiKey, request_class, response_class
from penstock.wire.messages.describe_configs import DescribeConfigsResource
from penstock.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from penstock.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics

CONTEXT = RequestContext(0, "test", Client(("127.0.0.1", 1), "PLAINTEXT"))
# Those whose rows have a fixed size.
SHORT_ROWS = {ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.FIND_COORDINATOR}


def test_rows_about_one_subject_are_united() -> None:
    rows = [TopicRequest("a", [0, 0, 1]), TopicRequest("b", [5]), TopicRequest("a", [1, 2])]
    assert distinct(rows, lambda row: row.name, "partition_indexes") == [
        TopicRequest("a", [0, 1, 2]),
        TopicRequest("b", [5]),
    ]
    assert distinct(["x", "y", "x"], str) == ["x", "y"]


@pytest.mark.parametrize("key", [key for key in PIECES if key not in SHORT_ROWS])
def test_each_api_with_long_rows_answers_a_repeated_one_once(key: ApiKey) -> None:
    pieces = PIECES[key]
    assert pieces.subject is not None
    handled: list[Any] = []

    def handle(request: Any, _: RequestContext) -> Any:
        handled.extend(getattr(request, pieces.asked))
        return response_class(key)()

    row: Any = "name"
    if key is ApiKey.DESCRIBE_PRODUCERS:
        row = TopicRequest("name", [0])
    elif key is ApiKey.DESCRIBE_CONFIGS:
        row = DescribeConfigsResource(2, "name", None)
    in_pieces(handle, pieces)(request_class(key)(**{pieces.asked: [row] * 3}), CONTEXT)
    assert handled == [row]


def test_partitions_of_one_topic_in_many_rows_are_described_once() -> None:
    handled: list[Any] = []

    def handle(request: DescribeProducersRequest, _: RequestContext) -> Any:
        handled.extend(request.topics)

    request = DescribeProducersRequest([TopicRequest("a", [0, 0]), TopicRequest("a", [0])])
    in_pieces(handle, PIECES[ApiKey.DESCRIBE_PRODUCERS])(request, CONTEXT)
    assert handled == [TopicRequest("a", [0])]


def test_offsets_are_fetched_once_for_each_group_and_partition() -> None:
    everything = OffsetFetchRequestGroup("g", topics=None)
    some = OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("t", partition_indexes=[0, 1, 0])])
    more = OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("t", partition_indexes=[1, 2])])
    other = OffsetFetchRequestGroup("h", topics=[OffsetFetchRequestTopics("t", partition_indexes=[0])])
    empty = OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("u", partition_indexes=[])])
    assert _without_repeats([everything, some, everything, more, other, some, empty]) == [
        everything,
        OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("t", partition_indexes=[0, 1])]),
        OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("t", partition_indexes=[2])]),
        other,
        empty,
    ]
