"""`/topics/{topic}/tail`: new records as server-sent events or over a WebSocket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from starlette.responses import Response, StreamingResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

from penstock.gateway.kafka.admin import Admin
from penstock.gateway.kafka.reader import offset_number
from penstock.gateway.kafka.records import ReadRecord
from penstock.gateway.rest.services import RestServices
from penstock.gateway.rest.shapes import INT32_MAX, TOPIC, left_out, put_text, show_headers
from penstock.gateway.web.operations import Call, Routes
from penstock.gateway.web.parameters import number, query
from penstock.gateway.web.problem import Problem
from penstock.gateway.web.quotas import caller_of

PATH = "/topics/{topic}/tail"
KEEP_ALIVE = b": nothing new\n\n"
IDLE_BATCHES = 20
SOCKET_ERROR = 1008
GOING_AWAY = 1001


routes: Routes[RestServices] = Routes("Live", in_paths=(TOPIC,))


@routes.on(
    f"GET {PATH}",
    "Follow a topic as server-sent events, one per record, until the client disconnects. WebSockets work too.",
    number("partition", "A partition; all partitions if omitted.", maximum=INT32_MAX),
    query("offset", "Where to start: latest, earliest or a number.", default="latest"),
    answer_type="text/event-stream",
)
async def tail(services: RestServices, call: Call) -> Response:
    partitions = await chosen_partitions(services.admin, call["topic"], call["partition"])
    offset = offset_number(call["offset"])
    batches = services.tails.follow(call["topic"], partitions, offset, call.caller)
    await anext(batches)
    return StreamingResponse(events(batches, _texts), media_type="text/event-stream")


async def follow(services: RestServices, socket: WebSocket) -> None:
    """Follow a topic over a WebSocket: one JSON text per record."""
    await socket.accept()
    topic = socket.path_params["topic"]
    try:
        partition = _partition(socket.query_params.get("partition"))
        partitions = await chosen_partitions(services.admin, topic, partition)
        offset = offset_number(socket.query_params.get("offset", "latest"))
        await _push(socket, services.tails.follow(topic, partitions, offset, caller_of(socket.scope)))
        await socket.close(GOING_AWAY, "this stream has ended")
    except Problem as problem:
        await socket.send_text(json.dumps(problem.as_json()))
        await socket.close(SOCKET_ERROR, problem.message[:100])
    except (WebSocketDisconnect, RuntimeError):
        return


async def chosen_partitions(admin: Admin, topic: str, partition: int | None) -> list[int]:
    """The partitions to follow; raises Problem if the topic does not have them."""
    count = await admin.partition_count(topic)
    if partition is not None and partition >= count:
        raise Problem(40402, f"topic {topic} has no partition {partition}", f"use 0 to {count - 1}, or leave it out")
    return list(range(count)) if partition is None else [partition]


def _partition(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or int(text) > INT32_MAX:
        raise Problem(40001, f"{text[:20]!r} is not a partition number", "use a number, 0 or above")
    return int(text)


async def events(
    batches: AsyncIterator[list[ReadRecord]], show_all: Callable[[list[ReadRecord]], Awaitable[Sequence[bytes]]]
) -> AsyncIterator[bytes]:
    """Events whose id is the record's position, so that a browser that reconnects can continue from there."""
    idle = 0
    yield b": following\n\n"
    async for batch in batches:
        idle = 0 if batch else idle + 1
        for record, shown in zip(batch, await show_all(batch), strict=True):
            yield b"id: %d-%d\ndata: %b\n\n" % (record.partition, record.offset, shown)
        if idle >= IDLE_BATCHES:
            idle = 0
            yield KEEP_ALIVE


async def _texts(records: list[ReadRecord]) -> list[bytes]:
    return [json.dumps(show(record)).encode() for record in records]


async def _push(socket: WebSocket, batches: AsyncIterator[list[ReadRecord]]) -> None:
    # Without a task that reads, a disconnect would be noticed only when the next record is sent.
    disconnected = asyncio.create_task(_until_closed(socket), name="tail-socket")
    try:
        async for batch in batches:
            if disconnected.done():
                return
            for record in batch:
                await socket.send_text(json.dumps(show(record)))
    finally:
        disconnected.cancel()
        await asyncio.gather(disconnected, return_exceptions=True)


async def _until_closed(socket: WebSocket) -> None:
    while (await socket.receive())["type"] != "websocket.disconnect":
        continue


def show(record: ReadRecord) -> dict[str, object]:
    """A record in the form that tails send."""
    shown: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
    }
    put_text(shown, "key", record.key)
    put_text(shown, "value", record.value)
    return {**shown, "headers": show_headers(record), **left_out(record)}
