"""How much one request may ask for: its bytes, its arrays, and the turns in which it is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from penstock.api.context import Client, RequestContext
from penstock.api.dispatch import SMALL_ENTRIES_MAX, Dispatcher, RequestLimits
from penstock.api.pieces import PIECES, in_pieces
from penstock.model.errors import ProtocolError
from penstock.wire.apis import APIS, ApiKey, request_class, response_class
from penstock.wire.codec import decode, encode, request_decoder
from penstock.wire.frame import RequestHeader, encode_request
from penstock.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock.wire.messages.read_share_group_state import (
    PartitionData,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateData,
)
from penstock.wire.primitives import TooManyEntries

LIMITS = RequestLimits(bytes_max=10_000, entries_max=100)
VERSIONS = {ApiKey.METADATA: (12, 12), ApiKey.FETCH: (12, 12)}


def metadata_of(names: Sequence[str]) -> MetadataRequest:
    return MetadataRequest([MetadataRequestTopic(name=name) for name in names])


def fetch_of(partitions: int) -> FetchRequest:
    return FetchRequest(topics=[FetchTopic("t", partitions=[FetchPartition(number) for number in range(partitions)])])


def send(request: Any, host: str = "client") -> Any:
    dispatcher = Dispatcher(
        {ApiKey.METADATA: lambda *_: MetadataResponse(), ApiKey.FETCH: lambda *_: FetchResponse()},
        VERSIONS,
        is_exempt=lambda client: client.host == "broker",
        limits=LIMITS,
    )
    key = ApiKey.METADATA if isinstance(request, MetadataRequest) else ApiKey.FETCH
    frame = b"".join(encode_request(RequestHeader(key, 12, 1, "x"), [encode(request, 12)]))[4:]
    return dispatcher.answer(bytearray(frame), Client((host, 1), ""))


def test_a_request_within_the_limits_is_served() -> None:
    assert send(metadata_of(["x" * 80] * 100))
    assert send(fetch_of(99))


def test_too_many_elements_are_refused_and_the_setting_is_named() -> None:
    for request in (metadata_of(["x"] * 101), fetch_of(100)):
        with pytest.raises(ProtocolError, match=r"penstock\.request\.entries\.max"):
            send(request)


def test_too_many_bytes_are_refused_and_the_setting_is_named() -> None:
    with pytest.raises(ProtocolError, match=r"penstock\.request\.bytes\.max"):
        send(metadata_of(["x" * 200] * 60))


def test_nodes_may_send_each_other_more_where_they_share_many_partitions() -> None:
    assert send(fetch_of(10_000), "broker")
    with pytest.raises(ProtocolError):
        send(metadata_of(["x"] * 101), "broker")


def test_what_nodes_send_each_other_is_small_when_a_client_sends_it() -> None:
    version = 0
    dispatcher = Dispatcher(
        {ApiKey.READ_SHARE_GROUP_STATE: lambda *_: ReadShareGroupStateResponse()},
        {ApiKey.READ_SHARE_GROUP_STATE: (version, version)},
        is_exempt=lambda client: client.host == "broker",
    )

    def send_rows(rows: int, host: str) -> Any:
        request = ReadShareGroupStateRequest("g", [ReadStateData(partitions=[PartitionData(n) for n in range(rows)])])
        header = RequestHeader(ApiKey.READ_SHARE_GROUP_STATE, version, 1, "x")
        frame = b"".join(encode_request(header, [encode(request, version)]))[4:]
        return dispatcher.answer(bytearray(frame), Client((host, 1), ""))

    assert send_rows(SMALL_ENTRIES_MAX - 1, "client")
    with pytest.raises(ProtocolError, match=f"more than {SMALL_ENTRIES_MAX} elements"):
        send_rows(SMALL_ENTRIES_MAX, "client")
    assert send_rows(40_000, "broker")


def test_elements_are_counted_over_all_arrays_before_they_are_read() -> None:
    request = fetch_of(50)._replace(topics=[*fetch_of(49).topics, *fetch_of(49).topics])
    data = encode(request, 12)
    read = request_decoder(FetchRequest, 12)
    assert read(data, 0, 100)[0] == decode(FetchRequest, 12, data)
    with pytest.raises(TooManyEntries):
        read(data, 0, 99)


@pytest.mark.parametrize("key", PIECES)
def test_the_arrays_of_an_api_in_pieces_are_those_of_its_messages(key: ApiKey) -> None:
    pieces = PIECES[key]
    request, response = request_class(key)(), response_class(key)()
    assert hasattr(request, pieces.asked)
    assert hasattr(response, pieces.answered)
    assert APIS[key].name


CONTEXT = RequestContext(1, None, Client(("client", 1), ""))


async def watched(answer: Any, done: list[int]) -> tuple[Any, list[int]]:
    """The response, and how many rows were done at each turn of the loop."""
    answering = asyncio.ensure_future(answer)
    turns = [0]
    while not answering.done():
        await asyncio.sleep(0)
        turns.append(len(done))
    return answering.result(), turns


def test_rows_are_answered_a_piece_at_a_time_and_in_order() -> None:
    done: list[int] = []

    def handle(request: DescribeConfigsRequest, _: RequestContext) -> DescribeConfigsResponse:
        done.extend(int(row.resource_name) for row in request.resources)
        return DescribeConfigsResponse(
            7, [DescribeConfigsResult(resource_name=r.resource_name) for r in request.resources]
        )

    async def story() -> None:
        pieces = PIECES[ApiKey.DESCRIBE_CONFIGS]
        served = in_pieces(handle, pieces)
        few = DescribeConfigsRequest([DescribeConfigsResource(2, str(number)) for number in range(pieces.rows_max)])
        assert isinstance(served(few, CONTEXT), DescribeConfigsResponse)
        done.clear()
        many = DescribeConfigsRequest([DescribeConfigsResource(2, str(number)) for number in range(1_001)])
        response, turns = await watched(served(many, CONTEXT), done)
        assert done == [int(row.resource_name) for row in response.results] == list(range(1_001))
        assert response.throttle_time_ms == 7
        assert max(after - before for before, after in pairwise(turns)) <= pieces.rows_max

    asyncio.run(story())


def test_a_row_with_many_rows_of_its_own_is_answered_as_one() -> None:
    done: list[int] = []

    async def handle(request: ListOffsetsRequest, _: RequestContext) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            done.extend(row.partition_index for row in topic.partitions)
            rows = [ListOffsetsPartitionResponse(row.partition_index) for row in topic.partitions]
            topics.append(ListOffsetsTopicResponse(topic.name, rows))
        return ListOffsetsResponse(0, topics)

    async def story() -> None:
        pieces = PIECES[ApiKey.LIST_OFFSETS]
        sizes = {"a": 3, "b": 1_000, "c": 0, "d": pieces.rows_max - 1, "e": pieces.rows_max, "f": 1}
        request = ListOffsetsRequest(
            -1,
            0,
            [ListOffsetsTopic(name, [ListOffsetsPartition(at) for at in range(size)]) for name, size in sizes.items()],
        )
        response, turns = await watched(in_pieces(handle, pieces)(request, CONTEXT), done)
        assert [(topic.name, len(topic.partitions)) for topic in response.topics] == list(sizes.items())
        for topic in response.topics:
            assert [row.partition_index for row in topic.partitions] == list(range(len(topic.partitions)))
        assert max(after - before for before, after in pairwise(turns)) <= pieces.rows_max

    asyncio.run(story())
