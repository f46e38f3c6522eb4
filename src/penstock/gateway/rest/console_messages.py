"""`/api/v1/topics/{topic}/messages` and `/tail`: records over all partitions, by place, time, key or content."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from confluent_kafka.admin._listoffsets import OffsetSpec
from starlette.responses import Response, StreamingResponse

from penstock.gateway.kafka.admin import Admin
from penstock.gateway.kafka.groups import Groups
from penstock.gateway.kafka.reader import Readers, offset_number
from penstock.gateway.kafka.records import ReadRecord
from penstock.gateway.kafka.tails import Tails
from penstock.gateway.rest.console_decode import FORMATS, show_record
from penstock.gateway.rest.schema_codec import SchemaCodec
from penstock.gateway.rest.shapes import INT32_MAX, INT64_MAX, TOPIC
from penstock.gateway.rest.tail import chosen_partitions
from penstock.gateway.web.application import json_response
from penstock.gateway.web.operations import Call, Operation
from penstock.gateway.web.parameters import number, query
from penstock.gateway.web.problem import Problem

TAG = "Messages (v1)"
LIMIT_MAX = 500
SCAN_MAX = 50_000
READS_AT_ONCE = 8
SEARCH_TIMEOUT_S = 9.0
KEEP_ALIVE = ": nothing new\n\n"
IDLE_BATCHES = 20
STARTS = ["latest", "earliest", "offset", "time"]
PARTITION = number("partition", "One partition; all without it.", maximum=INT32_MAX)
DECODING = (
    query("key_format", "How keys are shown.", enum=FORMATS, default="auto"),
    query("value_format", "How values are shown.", enum=FORMATS, default="auto"),
)
Matches = Callable[[ReadRecord], bool]


def message_operations(
    admin: Admin, readers: Readers, groups: Groups, tails: Tails, codec: SchemaCodec
) -> list[Operation]:
    """Reading records to look at them."""

    async def search(call: Call) -> Response:
        topic = call["topic"]
        partitions = await chosen_partitions(admin, topic, call["partition"])
        finder = _Finder(readers, groups, codec, call)
        try:
            scanned, found = await asyncio.wait_for(finder.find(topic, partitions), SEARCH_TIMEOUT_S)
        except TimeoutError:
            raise Problem(503, 50301, "not all leaders answer in time", "choose a partition, or look at less") from None
        shown = [show_record(record, codec, call["key_format"], call["value_format"]) for record in found]
        return json_response({"messages": shown, "scanned": scanned, "partitions": partitions})

    async def tail(call: Call) -> Response:
        partitions = await chosen_partitions(admin, call["topic"], call["partition"])
        batches = tails.follow(call["topic"], partitions, offset_number("latest"), call.caller)
        await anext(batches)
        events = _events(batches, codec, call["key_format"], call["value_format"])
        return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    return [
        Operation(
            "GET",
            "/api/v1/topics/{topic}/messages",
            search,
            "Find records of all partitions, newest first when they are the latest, and decode them.",
            TAG,
            (
                TOPIC,
                PARTITION,
                query("from", "Where to start.", enum=STARTS, default="latest"),
                number("offset", "With from=offset: the first offset to show.", maximum=INT64_MAX),
                number("time", "With from=time: milliseconds since 1970.", maximum=INT64_MAX),
                query("key", "Only records with this key.", maxLength=10_000),
                query("contains", "Only records whose key or value holds this text.", maxLength=1000),
                number("limit", "How many records at most.", 1, maximum=LIMIT_MAX, default=50),
                number("scan", "How many records to look at, at most.", 1, maximum=SCAN_MAX, default=10_000),
                *DECODING,
            ),
            answers={200: {"type": "object", "required": ["messages", "scanned"]}},
        ),
        Operation(
            "GET",
            "/api/v1/topics/{topic}/tail",
            tail,
            "Follow a topic with decoded records: server-sent events, one a record, until the caller hangs up.",
            "Live",
            (TOPIC, PARTITION, *DECODING),
            answer_type="text/event-stream",
        ),
    ]


class _Finder:
    """One search."""

    def __init__(self, readers: Readers, groups: Groups, codec: SchemaCodec, call: Call) -> None:
        self._readers = readers
        self._groups = groups
        self._call = call
        self._codec = codec
        self._matches = self._filter()
        self._turns = asyncio.Semaphore(READS_AT_ONCE)

    async def find(self, topic: str, partitions: list[int]) -> tuple[int, list[ReadRecord]]:
        """How many records were looked at, and those that match, at most as many as wanted."""
        call, limit = self._call, self._call["limit"]
        starts = await self._starts(topic, partitions)
        scan = max(1, call["scan"] // len(partitions)) if self._matches is not None else limit
        results = await asyncio.gather(*(self._read(topic, each, starts.get(each), scan) for each in partitions))
        records = [record for result in results for record in result]
        kept = [record for record in records if self._matches(record)] if self._matches is not None else records
        newest_first = call["from"] == "latest"
        kept.sort(key=lambda record: (record.timestamp_ms, record.partition, record.offset), reverse=newest_first)
        return len(records), kept[:limit]

    async def _starts(self, topic: str, partitions: list[int]) -> dict[int, int]:
        """Offsets to start from; for the latest they are found per partition."""
        call = self._call
        if call["from"] == "offset":
            if call["offset"] is None:
                raise Problem(400, 40001, "from=offset needs an offset", "add offset=…")
            return dict.fromkeys(partitions, call["offset"])
        if call["from"] == "time":
            if call["time"] is None:
                raise Problem(400, 40001, "from=time needs a time", "add time=… in milliseconds since 1970")
            spec = OffsetSpec.for_timestamp(call["time"])
            found = await self._groups.offsets([(topic, each) for each in partitions], spec)
            return {partition: offset for (_, partition), offset in found.items()}
        return {}

    async def _read(self, topic: str, partition: int, start: int | None, count: int) -> list[ReadRecord]:
        async with self._turns:
            beginning, end = await self._readers.watermarks(topic, partition)
            wanted = self._call["from"]
            if wanted == "earliest":
                start = beginning
            elif wanted == "latest":
                start = end - count
            # No record is as late as the time that is asked for: the end of the partition.
            start = end if start is None or (start < 0 and wanted == "time") else max(beginning, start)
            if start >= end:
                return []
            return await self._readers.read(topic, partition, start, min(count, end - start))

    def _filter(self) -> Matches | None:
        key, contains = self._call["key"], self._call["contains"]
        if key is None and not contains:
            return None
        wanted = (contains or "").lower()

        def matches(record: ReadRecord) -> bool:
            if key is not None and self._text(record.key) != key:
                return False
            return not wanted or wanted in self._text(record.value).lower() or wanted in self._text(record.key).lower()

        return matches

    def _text(self, data: bytes | None) -> str:
        """What the record says, decoded by its schema where it has one."""
        if data is None:
            return ""
        if data[:1] == b"\0":
            try:
                return json.dumps(self._codec.decode(data), ensure_ascii=False)
            except Problem:
                return data.decode("latin-1")
        return data.decode("utf-8", "replace")


async def _events(
    batches: AsyncIterator[list[ReadRecord]], codec: SchemaCodec, key_format: str, value_format: str
) -> AsyncIterator[str]:
    idle = 0
    yield ": following\n\n"
    async for batch in batches:
        idle = 0 if batch else idle + 1
        for record in batch:
            shown: dict[str, Any] = show_record(record, codec, key_format, value_format)
            yield f"id: {record.partition}-{record.offset}\ndata: {json.dumps(shown)}\n\n"
        if idle >= IDLE_BATCHES:
            idle = 0
            yield KEEP_ALIVE
