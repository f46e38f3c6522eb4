"""A client that sends exactly what a test wants, in any version, with our own codec and one socket."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

from penstock.client.closing import Closing
from penstock.wire.apis import APIS, request_class, response_class, response_header_version
from penstock.wire.codec import decode, encoder
from penstock.wire.frame import RequestHeader, decode_response_header, encode_request
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from penstock.wire.primitives import Buffer, RecordBuffers
from penstock.wire.records import Record, build_batch, read_records, split_batches

KEYS = {request_class(key).__name__: key for key in APIS}
TIMEOUT_SECONDS = 20
BYTES_MAX = 64 * 1024 * 1024

# Versions that name topics by their names and know every error message.
PRODUCE_VERSION = 12
FETCH_VERSION = 12
LIST_OFFSETS_VERSION = 9


class WireClient(Closing):
    """One connection. `call` is a round trip; `send` and `receive` keep several requests in flight."""

    def __init__(self, address: str, client_id: str | None = "wire-client") -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client_id = client_id
        self._next_id = 1

    def close(self) -> None:
        self._socket.close()

    def send(self, request: Any, version: int) -> int:
        """Send without waiting; returns the correlation id."""
        key = KEYS[type(request).__name__]
        body: list[Buffer] = []
        encoder(type(request), version)(request, body)
        correlation_id = self._next_id
        self._next_id += 1
        header = RequestHeader(key, version, correlation_id, self._client_id)
        self._socket.sendall(b"".join(encode_request(header, body)))
        return correlation_id

    def send_bytes(self, data: bytes) -> None:
        """Send a frame's content as it is."""
        self._socket.sendall(struct.pack(">i", len(data)) + data)

    def receive_bytes(self) -> bytes:
        """The next frame's content; ConnectionError when the broker hung up."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def receive(self, request: Any, version: int) -> tuple[int, Any]:
        """The next reply as the answer to `request`: its correlation id and the response."""
        correlation_id, body = self.receive_body(request, version)
        return correlation_id, decode(response_class(KEYS[type(request).__name__]), version, body)

    def receive_body(self, request: Any, version: int) -> tuple[int, bytes]:
        """The next reply's correlation id and the bytes behind its header."""
        frame = self.receive_bytes()
        header_version = response_header_version(KEYS[type(request).__name__], version)
        correlation_id, position = decode_response_header(frame, header_version)
        return correlation_id, frame[position:]

    def call(self, request: Any, version: int) -> Any:
        """Send a request and return its response."""
        sent = self.send(request, version)
        received, response = self.receive(request, version)
        assert received == sent
        return response

    def is_closed(self) -> bool:
        """Whether the broker hangs up, without another byte, within the time limit."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionError:
            return True

    def _exactly(self, size: int) -> bytes:
        chunks = []
        while size:
            chunk = self._socket.recv(min(size, 1 << 20))
            if not chunk:
                raise ConnectionError("the broker closed the connection")
            chunks.append(chunk)
            size -= len(chunk)
        return b"".join(chunks)

    # What most tests ask for.

    def produce(self, topic: str, batch: bytes, *, partition: int = 0, acks: int = -1) -> PartitionProduceResponse:
        """Send one batch and return its partition's answer."""
        request = produce_request(topic, batch, partition=partition, acks=acks)
        answer: PartitionProduceResponse = self.call(request, PRODUCE_VERSION).responses[0].partition_responses[0]
        return answer

    def fetch(self, topic: str, offset: int, **options: Any) -> PartitionData:
        """Fetch one partition and return its answer; `options` are those of `fetch_request`."""
        answer: PartitionData = (
            self.call(fetch_request(topic, offset, **options), FETCH_VERSION).responses[0].partitions[0]
        )
        return answer

    def list_offset(self, topic: str, timestamp: int, *, partition: int = 0, isolation_level: int = 0) -> Any:
        """Ask for one partition's offset at a time (or -1 latest, -2 earliest, -3 max timestamp)."""
        wanted = ListOffsetsTopic(topic, [ListOffsetsPartition(partition, -1, timestamp)])
        request = ListOffsetsRequest(-1, isolation_level, [wanted])
        return self.call(request, LIST_OFFSETS_VERSION).topics[0].partitions[0]

    def new_producer_id(self) -> int:
        """A producer id that no other producer has."""
        response = self.call(InitProducerIdRequest(None, 60_000), 4)
        assert response.error_code == 0
        producer_id: int = response.producer_id
        return producer_id


def produce_request(
    topic: str, batch: bytes | None, *, partition: int = 0, acks: int = -1, topic_id: bytes = bytes(16)
) -> ProduceRequest:
    """A produce of one batch to one partition."""
    data = TopicProduceData(topic, topic_id, [PartitionProduceData(partition, batch)])
    return ProduceRequest(None, acks, 10_000, [data])


def fetch_request(
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    topic_id: bytes = bytes(16),
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = BYTES_MAX,
    partition_max_bytes: int = BYTES_MAX,
    isolation_level: int = 0,
    current_leader_epoch: int = -1,
    session_id: int = 0,
    session_epoch: int = -1,
) -> FetchRequest:
    """A fetch of one partition."""
    wanted = FetchPartition(partition, current_leader_epoch, offset, partition_max_bytes=partition_max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic, topic_id, [wanted])],
    )


def batch_of(
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    timestamps: Sequence[int] | None = None,
    **options: Any,
) -> bytes:
    """A batch of records with these values; `options` are those of `build_batch`."""
    now = int(time.time() * 1000)
    records = [
        Record(index, timestamps[index] if timestamps else now, keys[index] if keys else None, value)
        for index, value in enumerate(values)
    ]
    return build_batch(records, **options)


def records_in(data: RecordBuffers | None) -> list[Record]:
    """Every record of the batches that a fetch returned."""
    assert data is None or isinstance(data, Buffer), "a decoded fetch has its records in one piece"
    found: list[Record] = []
    for position, _ in split_batches(data or b"", BYTES_MAX):
        found += read_records(data or b"", BYTES_MAX, position)
    return found
