"""`/api/v1/topics/{topic}/messages` and `/tail`: records of all partitions, by position, time, key or content."""

from __future__ import annotations

import asyncio
from functools import partial

from starlette.responses import Response, StreamingResponse

from penstock.gateway.kafka.groups import Groups
from penstock.gateway.kafka.reader import Readers, offset_number
from penstock.gateway.kafka.records import ReadRecord
from penstock.gateway.rest.native.tail import chosen_partitions, events
from penstock.gateway.rest.services import RestServices
from penstock.gateway.rest.shapes import INT32_MAX, INT64_MAX, TOPIC
from penstock.gateway.rest.values.json_text import json_bytes
from penstock.gateway.rest.values.record_json import FORMATS
from penstock.gateway.rest.values.schema_codec import SchemaCodec
from penstock.gateway.web.operations import JSON_TYPE, Call, Routes, json_object
from penstock.gateway.web.parameters import number, query
from penstock.gateway.web.problem import Problem
from penstock.model.ids import TopicPartition

TAG = "Messages (v1)"
LIMIT_MAX = 500
SCAN_MAX = 50_000
# For all partitions together, with a minimum for each.
SCAN_BYTES_MAX = 32 * 1024 * 1024
PARTITION_BYTES_MIN = 256 * 1024
READS_AT_ONCE = 8
SEARCH_TIMEOUT_S = 9.0
STARTS = ["latest", "earliest", "offset", "time"]
PARTITION = number("partition", "A partition; all partitions if omitted.", maximum=INT32_MAX)
DECODING = (
    query("key_format", "How keys are shown.", enum=FORMATS, default="auto"),
    query("value_format", "How values are shown.", enum=FORMATS, default="auto"),
)


routes: Routes[RestServices] = Routes(TAG, "/api/v1/topics/{topic}", (TOPIC,))

live_routes: Routes[RestServices] = Routes("Live", "/api/v1/topics/{topic}", (TOPIC,), answer_type="text/event-stream")


@routes.on(
    "GET /messages",
    "Search the records of all partitions and decode them; newest first with from=latest.",
    PARTITION,
    query("from", "Where to start.", enum=STARTS, default="latest"),
    number("offset", "With from=offset: the first offset to show.", maximum=INT64_MAX),
    number("time", "With from=time: milliseconds since 1970.", maximum=INT64_MAX),
    query("key", "Only records with this key.", maxLength=10_000),
    query("contains", "Only records whose key or value contains this text.", maxLength=1000),
    number("limit", "How many records at most.", 1, maximum=LIMIT_MAX, default=50),
    number("scan", "How many records to scan at most.", 1, maximum=SCAN_MAX, default=10_000),
    *DECODING,
    answers={200: json_object(["messages", "scanned"])},
)
async def search(services: RestServices, call: Call) -> Response:
    topic = call["topic"]
    partitions = await chosen_partitions(services.admin, topic, call["partition"])
    finder = _Finder(services.readers, services.groups, services.console_codec, call)
    try:
        records = await asyncio.wait_for(finder.read(topic, partitions), SEARCH_TIMEOUT_S)
    except TimeoutError:
        raise Problem(
            50301, "not all partition leaders answered in time", "choose a partition, or scan fewer records"
        ) from None
    found = await finder.chosen(records)
    shown = await services.console_codec.show(found, call["key_format"], call["value_format"])
    answer = b'{"messages":[%b],"scanned":%d,"partitions":%b}'
    return Response(answer % (b",".join(shown), len(records), json_bytes(partitions)), media_type=JSON_TYPE)


@live_routes.on(
    "GET /tail",
    "Follow a topic's decoded records as server-sent events, one per record, until the client disconnects.",
    PARTITION,
    *DECODING,
)
async def tail(services: RestServices, call: Call) -> Response:
    partitions = await chosen_partitions(services.admin, call["topic"], call["partition"])
    batches = services.tails.follow(call["topic"], partitions, offset_number("latest"), call.caller)
    await anext(batches)
    shown = partial(services.console_codec.show_live, key_format=call["key_format"], value_format=call["value_format"])
    return StreamingResponse(
        events(batches, shown), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
    )


class _Finder:
    """One search request."""

    def __init__(self, readers: Readers, groups: Groups, codec: SchemaCodec, call: Call) -> None:
        self._readers = readers
        self._groups = groups
        self._call = call
        self._codec = codec
        self._filters = call["key"] is not None or bool(call["contains"])
        self._turns = asyncio.Semaphore(READS_AT_ONCE)
        self._bytes_a_partition = PARTITION_BYTES_MIN

    async def read(self, topic: str, partitions: list[int]) -> list[ReadRecord]:
        """The records to search."""
        call, limit = self._call, self._call["limit"]
        starts = await self._starts(topic, partitions)
        self._bytes_a_partition = max(PARTITION_BYTES_MIN, SCAN_BYTES_MAX // len(partitions))
        scan = max(1, call["scan"] // len(partitions)) if self._filters else limit
        results = await asyncio.gather(*(self._read(topic, each, starts.get(each), scan) for each in partitions))
        return [record for result in results for record in result]

    async def chosen(self, records: list[ReadRecord]) -> list[ReadRecord]:
        """The matching records, in order, up to the limit."""
        call = self._call
        kept = list(records)
        if self._filters:
            found = await self._codec.find(records, call["key"], call["contains"] or "")
            kept = [record for record, matches in zip(records, found, strict=True) if matches]
        ordered = _by_time(kept)
        return (ordered[::-1] if call["from"] == "latest" else ordered)[: call["limit"]]

    async def _starts(self, topic: str, partitions: list[int]) -> dict[int, int]:
        """The offset to start at in each partition."""
        call = self._call
        if call["from"] == "offset":
            if call["offset"] is None:
                raise Problem(40001, "from=offset needs an offset", "add offset=…")
            return dict.fromkeys(partitions, call["offset"])
        if call["from"] == "time":
            if call["time"] is None:
                raise Problem(40001, "from=time needs a time", "add time=… in milliseconds since 1970")
            found = await self._groups.offsets([TopicPartition(topic, each) for each in partitions], call["time"])
            return {place.partition: offset for place, offset in found.items()}
        return {}

    async def _read(self, topic: str, partition: int, start: int | None, count: int) -> list[ReadRecord]:
        async with self._turns:
            beginning, end = await self._readers.watermarks(topic, partition)
            wanted = self._call["from"]
            if wanted == "earliest":
                start = beginning
            elif wanted == "latest":
                start = end - count
            # All records are older than the requested time: start at the end of the partition.
            start = end if start is None or (start < 0 and wanted == "time") else max(beginning, start)
            if start >= end:
                return []
            return await self._readers.read(
                topic, partition, start, min(count, end - start), bytes_max=self._bytes_a_partition
            )


def _by_time(records: list[ReadRecord]) -> list[ReadRecord]:
    """Records by timestamp. A record that could not be read has none, and stays behind the one before it."""
    times: list[int] = []
    latest: dict[int, int] = {}
    for record in records:
        time_ms = latest.get(record.partition, 0) if record.unreadable else record.timestamp_ms
        latest[record.partition] = time_ms
        times.append(time_ms)
    order = sorted(range(len(records)), key=lambda at: (times[at], records[at].partition, records[at].offset))
    return [records[index] for index in order]
