"""How much one request may ask for: its bytes, its arrays, and the turns in which it is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from penstock.api.context import Client, RequestContext, settled
from penstock.api.dispatch import SMALL_ENTRIES_MAX, Dispatcher, RequestLimits
from penstock.api.pieces import PIECES, ROWS_READ_MAX, ROWS_WRITTEN_MAX, in_pieces
from penstock.model.errors import ProtocolError, Throttled
from penstock.wire.apis import APIS, ApiKey, request_class, response_class
from penstock.wire.codec import bounded_decoder, decode, encode, stepwise_decoder
from penstock.wire.compiler import STEP_ELEMENTS
from penstock.wire.frame import RequestHeader, encode_request
from penstock.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from penstock.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from penstock.wire.messages.fetch import PartitionData as FetchedPartition
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from penstock.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from penstock.wire.messages.read_share_group_state import (
    PartitionData,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateData,
)
from penstock.wire.primitives import TooManyEntries, unsigned_varint

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
    return answer_of(dispatcher, frame, host)


def answer_of(dispatcher: Dispatcher, frame: bytes, host: str) -> Any:
    """What is sent, at once or later."""

    async def answered() -> Any:
        return await settled(dispatcher.answer(bytearray(frame), Client((host, 1), "")))

    return asyncio.run(answered())


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
        return answer_of(dispatcher, frame, host)

    assert send_rows(SMALL_ENTRIES_MAX - 1, "client")
    with pytest.raises(ProtocolError, match=f"more than {SMALL_ENTRIES_MAX} elements"):
        send_rows(SMALL_ENTRIES_MAX, "client")
    assert send_rows(40_000, "broker")


def test_elements_are_counted_over_all_arrays_before_they_are_read() -> None:
    request = fetch_of(50)._replace(topics=[*fetch_of(49).topics, *fetch_of(49).topics])
    data = encode(request, 12)
    read = bounded_decoder(FetchRequest, 12)
    assert read(data, 0, 100)[0] == decode(FetchRequest, 12, data)
    with pytest.raises(TooManyEntries):
        read(data, 0, 99)


def test_elements_of_a_response_are_counted() -> None:
    topics = [MetadataResponseTopic(partitions=[MetadataResponsePartition(replica_nodes=[1, 2, 3])] * 5)] * 2
    data = encode(MetadataResponse(topics=topics), 12)
    read = bounded_decoder(MetadataResponse, 12)
    assert read(data, 0, 2 + 2 * 5 * (1 + 3))[0] == decode(MetadataResponse, 12, data)
    with pytest.raises(TooManyEntries):
        read(data, 0, 2 + 2 * 5 * (1 + 3) - 1)


def test_tagged_fields_count_as_elements() -> None:
    data = encode(metadata_of(["x"]), 12)
    assert data.endswith(b"\0")
    read = bounded_decoder(MetadataRequest, 12)
    tagged = data[:-1] + bytes([99]) + b"\x63\x00" * 99
    assert read(tagged, 0, 100)[0] == decode(MetadataRequest, 12, data)
    with pytest.raises(TooManyEntries):
        read(tagged, 0, 99)


def test_tagged_fields_are_read_in_turns() -> None:
    data = encode(metadata_of(["x"]), 12)[:-1] + unsigned_varint(5_000) + b"\x63\x00" * 5_000
    steps = stepwise_decoder(MetadataRequest, 12)(data, 0, 5_001)
    assert sum(1 for _ in steps) >= 5_000 // STEP_ELEMENTS


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


def dispatcher_of(handle: Any) -> Dispatcher:
    return Dispatcher({ApiKey.METADATA: handle}, {ApiKey.METADATA: (12, 12)})


def metadata_frame(names: Sequence[str] | None) -> bytearray:
    request = MetadataRequest(None) if names is None else metadata_of(names)
    return bytearray(b"".join(encode_request(RequestHeader(ApiKey.METADATA, 12, 1, "x"), [encode(request, 12)]))[4:])


def rows_of(count: int) -> MetadataResponse:
    return MetadataResponse(topics=[MetadataResponseTopic(0, f"{number}") for number in range(count)])


@pytest.mark.parametrize("names", [[f"{number}" for number in range(20_000)], None])
def test_many_elements_are_read_and_written_while_others_are_served(names: list[str] | None) -> None:
    async def story() -> None:
        dispatcher = dispatcher_of(lambda *_: rows_of(20_000))
        neighbour = dispatcher_of(lambda *_: MetadataResponse())
        served = 0

        def serve_neighbour() -> None:
            nonlocal served
            assert neighbour.answer(metadata_frame([]), Client(("neighbour", 1), ""))
            served += 1
            asyncio.get_running_loop().call_soon(serve_neighbour)

        asyncio.get_running_loop().call_soon(serve_neighbour)
        reply = await settled(dispatcher.answer(metadata_frame(names), Client(("client", 1), "")))
        arrays = 1 if names is None else 2
        assert served >= arrays * 20_000 // STEP_ELEMENTS
        body = b"".join(reply)[4 + 5 :]
        assert decode(MetadataResponse, 12, body) == decode(MetadataResponse, 12, encode(rows_of(20_000), 12))

    asyncio.run(story())


def test_a_large_response_to_a_fetch_that_waited_is_written_in_turns() -> None:
    rows = FetchResponse(
        responses=[FetchableTopicResponse("t", partitions=[FetchedPartition(n) for n in range(5_000)])]
    )

    async def fetched(*_: object) -> FetchResponse:
        return rows

    async def story() -> None:
        dispatcher = Dispatcher({ApiKey.FETCH: fetched}, {ApiKey.FETCH: (12, 12)})
        frame = b"".join(encode_request(RequestHeader(ApiKey.FETCH, 12, 1, "x"), [encode(FetchRequest(), 12)]))[4:]
        reply, turns = await watched(settled(dispatcher.answer(bytearray(frame), Client(("client", 1), ""))), [])
        assert len(turns) > 5_000 // STEP_ELEMENTS
        assert b"".join(reply)[4 + 5 :] == encode(rows, 12)

    asyncio.run(story())


def test_a_request_with_few_elements_is_answered_at_once() -> None:
    async def story() -> None:
        dispatcher = dispatcher_of(lambda *_: rows_of(ROWS_WRITTEN_MAX))
        names = [f"{number}" for number in range(ROWS_READ_MAX)]
        assert isinstance(dispatcher.answer(metadata_frame(names), Client(("client", 1), "")), list)

    asyncio.run(story())


def test_a_large_produce_is_finished_though_its_producer_has_gone_and_waits_while_it_is_throttled() -> None:
    topics = [TopicProduceData(f"{number}", partition_data=[PartitionProduceData(0, b"")]) for number in range(2_000)]
    request = ProduceRequest(None, 1, 1_000, topics)
    frame = b"".join(encode_request(RequestHeader(ApiKey.PRODUCE, 12, 1, "x"), [encode(request, 12)]))[4:]
    calls: list[int] = []
    served = asyncio.Event()

    def produce(request: ProduceRequest, _: RequestContext) -> ProduceResponse:
        calls.append(len(request.topic_data))
        if len(calls) == 1:
            raise Throttled(1)
        served.set()
        return ProduceResponse()

    async def story() -> None:
        dispatcher = Dispatcher({ApiKey.PRODUCE: produce}, {ApiKey.PRODUCE: (3, 12)})
        answer = dispatcher.answer(bytearray(frame), Client(("client", 1), ""))
        # As nothing else of its connection may be served before, which connections see by this.
        assert isinstance(answer, asyncio.Task)
        await asyncio.sleep(0)
        answer.cancel()
        async with asyncio.timeout(10):
            await served.wait()
        assert answer.cancelled()
        assert calls == [2_000, 2_000]

    asyncio.run(story())
