"""What one request costs inside a broker: `python -m bench.micro`.

A whole node runs in this process; request frames are put into a connection's buffer as a transport would, and the
reply is taken from it. Everything between the socket's read and write is measured, the file system included, the
socket's system calls not. It is processor time: other programs on the machine do not count.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import logging
import pstats
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from struct import unpack_from
from typing import Any

from tests.support.kafka_broker import combined_node_properties, free_port

from penstock.api.dispatch import Dispatcher
from penstock.config.broker import node_settings
from penstock.node import Node
from penstock.runtime.env import SystemEnv
from penstock.server.connection import SCRATCH_BYTES, Connection
from penstock.server.limits import ConnectionLimits
from penstock.wire.apis import response_class, response_header_version
from penstock.wire.codec import decode, encode
from penstock.wire.frame import RequestHeader, decode_response_header, encode_request
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.record_types import Record
from penstock.wire.records import build_batch

PRODUCE, FETCH, CREATE_TOPICS = 0, 1, 19
PRODUCE_VERSION, FETCH_VERSION, CREATE_TOPICS_VERSION = 9, 12, 7
TOPIC = "micro"
ROUNDS = 40
REQUESTS_A_ROUND = 250
LARGE_REQUESTS_A_ROUND = 3
REQUEST_BYTES_MAX = 100 * 1024 * 1024
BUDGET_MICROSECONDS = 40.0


class ObservedNode(Node):
    """A node that shows its dispatcher, so that requests can be put in behind the sockets."""

    dispatcher: Dispatcher

    async def start(self) -> None:
        serve = self._endpoints.serve_brokers

        def observed(dispatcher: Dispatcher) -> None:
            self.dispatcher = dispatcher
            serve(dispatcher)

        self._endpoints.serve_brokers = observed  # type: ignore[method-assign]
        await super().start()


class ReplyCounter(asyncio.Transport):
    """Takes replies as a socket that is always writable would."""

    def __init__(self) -> None:
        super().__init__()
        self.replies = 0
        self.replied = asyncio.Event()
        self.last: list[Any] = []

    def write(self, data: Any) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Any) -> None:
        self.replies += 1
        self.last = list_of_data
        self.replied.set()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no buffer."""


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of request, as the bytes that arrive."""

    name: str
    frame: bytes
    requests_a_round: int = REQUESTS_A_ROUND


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds of processor time a request: median and fastest of the rounds."""

    name: str
    median: float
    fastest: float


def request_frame(api_key: int, version: int, request: object) -> bytes:
    header = RequestHeader(api_key, version, 1, "micro")
    return b"".join(encode_request(header, [encode(request, version)]))


def produce_frame(records: int, size: int = 100) -> bytes:
    now = time.time_ns() // 1_000_000
    batch = build_batch([Record(offset, now, None, b"x" * size) for offset in range(records)])
    topic = TopicProduceData(TOPIC, partition_data=(PartitionProduceData(0, batch),))
    return request_frame(PRODUCE, PRODUCE_VERSION, ProduceRequest(None, 1, 30_000, (topic,)))


def fetch_frame(offset: int, max_bytes: int) -> bytes:
    partition = FetchPartition(0, fetch_offset=offset, partition_max_bytes=max_bytes)
    topics = (FetchTopic(TOPIC, partitions=(partition,)),)
    request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=max_bytes, topics=topics)
    return request_frame(FETCH, FETCH_VERSION, request)


def cases() -> list[Case]:
    """Produce comes first: its records are what the fetches read."""
    medium, large = 150, 9_000
    medium_from = ROUNDS * REQUESTS_A_ROUND
    large_from = medium_from * (1 + medium)
    return [
        Case("Produce, 1 record of 100 B", produce_frame(1)),
        Case("Produce, 16 KB batch of 100 B records", produce_frame(medium)),
        Case("Produce, 1 MB batch of 100 B records", produce_frame(large), LARGE_REQUESTS_A_ROUND),
        Case("Fetch, 1 record of 100 B", fetch_frame(0, 1)),
        Case("Fetch, 16 KB", fetch_frame(medium_from, 16_384)),
        Case("Fetch, 1 MB", fetch_frame(large_from, 1 << 20), LARGE_REQUESTS_A_ROUND),
    ]


def open_connection(dispatcher: Dispatcher) -> tuple[Connection, ReplyCounter]:
    session = dispatcher.session("PLAINTEXT", ("127.0.0.1", 1))
    limits = ConnectionLimits(request_bytes_max=REQUEST_BYTES_MAX)
    loop = asyncio.get_running_loop()
    connection = Connection(session, limits, loop, ("127.0.0.1", 1), bytearray(SCRATCH_BYTES), lambda _: None)
    transport = ReplyCounter()
    connection.connection_made(transport)
    return connection, transport


def feed(connection: Connection, frame: bytes) -> None:
    """Let a frame arrive, in as many reads as the connection's buffers make of it."""
    position = 0
    while position < len(frame):
        buffer = connection.get_buffer(-1)
        length = min(len(buffer), len(frame) - position)
        buffer[:length] = frame[position : position + length]
        connection.buffer_updated(length)
        position += length


def check_reply(case: Case, reply: bytes) -> None:
    """An error would be cheap too: the last reply must be a good one, and a fetch's must hold records."""
    (api_key,) = unpack_from(">h", case.frame, 4)
    version = PRODUCE_VERSION if api_key == PRODUCE else FETCH_VERSION
    _, position = decode_response_header(reply[4:], response_header_version(api_key, version))
    response = decode(response_class(api_key), version, reply[4 + position :])
    (topic,) = response.responses
    (partition,) = topic.partition_responses if api_key == PRODUCE else topic.partitions
    if partition.error_code != 0 or (api_key == FETCH and not partition.records):
        raise RuntimeError(f"{case.name}: the reply is {partition}")


async def measure(case: Case, dispatcher: Dispatcher) -> Cost:
    connection, transport = open_connection(dispatcher)
    microseconds = []
    for _ in range(ROUNDS):
        expected = transport.replies + case.requests_a_round
        began = time.thread_time()
        for _ in range(case.requests_a_round):
            feed(connection, case.frame)
        microseconds.append((time.thread_time() - began) / case.requests_a_round * 1e6)
        # A request whose reply waits for something would be cheap here and dear elsewhere.
        if transport.replies != expected:
            raise RuntimeError(f"{case.name}: {expected - transport.replies} replies did not come at once")
        await asyncio.sleep(0)
    check_reply(case, b"".join(transport.last))
    return Cost(case.name, statistics.median(microseconds), min(microseconds))


async def run(wanted: Callable[[Dispatcher], Any]) -> Any:
    """Start a node in this process, give its dispatcher to the caller, stop it."""
    with tempfile.TemporaryDirectory(prefix="penstock-micro-") as data:
        settings, _ = node_settings(combined_node_properties(Path(data), free_port(), free_port()))
        env = SystemEnv()
        node = ObservedNode(settings, env)
        await node.start()
        try:
            topics = CreateTopicsRequest((CreatableTopic(TOPIC, 1, 1),))
            frame = request_frame(CREATE_TOPICS, CREATE_TOPICS_VERSION, topics)
            connection, transport = open_connection(node.dispatcher)
            feed(connection, frame)
            await transport.replied.wait()
            return await wanted(node.dispatcher)
        finally:
            await node.stop()
            await env.close()


async def measure_all(dispatcher: Dispatcher) -> list[Cost]:
    return [await measure(case, dispatcher) for case in cases()]


async def profile(dispatcher: Dispatcher, lines: int) -> None:
    """Where the time goes, case by case."""
    for case in cases():
        profiler = cProfile.Profile()
        profiler.enable()
        await measure(case, dispatcher)
        profiler.disable()
        print(f"\n{case.name}")
        pstats.Stats(profiler).sort_stats("tottime").print_stats(lines)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.micro", description="What a request costs in the broker.")
    parser.add_argument("--json", action="store_true", help="one JSON array for programs")
    parser.add_argument("--profile", type=int, metavar="LINES", help="print that many lines of a profile of each case")
    options = parser.parse_args(arguments)
    logging.disable(logging.WARNING)
    if options.profile:
        asyncio.run(run(partial(profile, lines=options.profile)))
        return 0
    costs: list[Cost] = asyncio.run(run(measure_all))
    if options.json:
        print(json.dumps([{"name": cost.name, "median": cost.median, "fastest": cost.fastest} for cost in costs]))
        return 0
    print(f"microseconds a request (the budget for a small one: {BUDGET_MICROSECONDS:.0f})")
    for cost in costs:
        print(f"  {cost.name:<40} median {cost.median:8.1f}   fastest {cost.fastest:8.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
