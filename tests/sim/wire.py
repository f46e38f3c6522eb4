"""Connections of simulated clients: requests out, responses back, time-outs, and who leads what."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections import deque
from random import Random
from typing import Any

from penstock.model.errors import ErrorCode
from penstock.wire.apis import APIS, request_class, response_class, response_header_version
from penstock.wire.codec import decode, encoder
from penstock.wire.frame import RequestHeader, decode_response_header, encode_request
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from sim.network import Host, SimNetwork, StreamEnd

KEYS = {request_class(key).__name__: key for key in APIS}
# Versions that name topics by their names.
VERSIONS = {
    "ProduceRequest": 12,
    "FetchRequest": 12,
    "MetadataRequest": 12,
    "ListOffsetsRequest": 9,
    "InitProducerIdRequest": 4,
    "FindCoordinatorRequest": 4,
    "OffsetCommitRequest": 9,
    "OffsetFetchRequest": 9,
    "ConsumerGroupHeartbeatRequest": 0,
}
REQUEST_TIMEOUT_S = 4.0
CONNECT_TIMEOUT_S = 2.0
BACKOFF_S = 0.1
# However rarely an actor does something: a run ends when all have done it.
PAUSE_MAX_S = 20.0

# Errors after which a client tries again, having looked who leads now.
RETRIABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


class Failed(Exception):
    """A request got no usable answer. `maybe_done` where it may have had its effect all the same."""

    def __init__(self, text: str, code: int = 0, *, maybe_done: bool = True) -> None:
        super().__init__(text)
        self.code = code
        self.maybe_done = maybe_done


class Wire(asyncio.Protocol):
    """One connection to a broker; several requests may be in flight."""

    def __init__(self) -> None:
        self._transport: StreamEnd | None = None
        self._buffer = b""
        self._waiting: deque[tuple[int, int, int, asyncio.Future[Any]]] = deque()
        self._next_id = 1
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, StreamEnd)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        waiting, self._waiting = self._waiting, deque()
        for *_, future in waiting:
            if not future.done():
                future.set_exception(Failed(f"the connection was lost: {exc}"))
                future.exception()

    def pause_writing(self) -> None:
        """What a client sends is little; it may wait in memory."""

    def resume_writing(self) -> None:
        """See `pause_writing`."""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4:
            (size,) = struct.unpack_from(">i", self._buffer)
            if len(self._buffer) < 4 + size:
                return
            frame, self._buffer = self._buffer[4 : 4 + size], self._buffer[4 + size :]
            correlation_id, key, version, future = self._waiting.popleft()
            received, position = decode_response_header(frame, response_header_version(key, version))
            assert received == correlation_id, "answers come in the order of their requests"
            if not future.done():
                future.set_result(decode(response_class(key), version, frame[position:]))

    def send(self, request: Any, client_id: str, version: int | None = None) -> asyncio.Future[Any]:
        """Send without waiting; the response is the future's result."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.is_lost or self._transport is None:
            future.set_exception(Failed("the connection was lost", maybe_done=False))
            return future
        name = type(request).__name__
        key = KEYS[name]
        if version is None:
            version = VERSIONS.get(name, APIS[key].last_version)
        body: list[Any] = []
        encoder(type(request), version)(request, body)
        self._waiting.append((self._next_id, key, version, future))
        header = RequestHeader(key, version, self._next_id, client_id)
        self._next_id += 1
        self._transport.write(b"".join(encode_request(header, body)))
        return future

    def abort(self) -> None:
        """Close the connection; waiting requests fail."""
        if self._transport is not None:
            self._transport.abort()


class Cluster:
    """What one client process knows of the cluster: connections, leaders, coordinators."""

    def __init__(self, network: SimNetwork, host: Host, name: str, bootstrap: list[tuple[str, int]], random: Random):
        self.name = name
        self.random = random
        self._network = network
        self._host = host
        self._bootstrap = bootstrap
        self._wires: dict[tuple[str, int], Wire] = {}
        self._connecting: dict[tuple[str, int], asyncio.Future[Wire]] = {}
        self.addresses: dict[int, tuple[str, int]] = {}
        # By topic and partition: the leader and its epoch.
        self.leaders: dict[tuple[str, int], tuple[int, int]] = {}
        self.topic_ids: dict[str, bytes] = {}
        self._refreshed_at = -10.0

    async def wire(self, address: tuple[str, int]) -> Wire:
        """A connection to an address; the same one as long as it holds."""
        wire = self._wires.get(address)
        if wire is not None and not wire.is_lost:
            return wire
        wire = Wire()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await self._network.connect(self._host, *address, lambda: wire)
        except OSError as error:
            raise Failed(f"cannot connect to {address[0]}: {error}", maybe_done=False) from error
        known = self._wires.get(address)
        if known is not None and not known.is_lost:
            wire.abort()
            return known
        self._wires[address] = wire
        return wire

    async def call(
        self,
        address: tuple[str, int],
        request: Any,
        timeout_s: float = REQUEST_TIMEOUT_S,
        version: int | None = None,
    ) -> Any:
        """One request and its response; raises Failed. A time-out closes the connection."""
        wire = await self.wire(address)
        return await self.answer(wire, wire.send(request, self.name, version), timeout_s)

    async def deliver_late(self, address: tuple[str, int], request: Any, delay_s: float, version: int) -> None:
        """Something that was on its way for long arrives, and no request waits for an answer any more."""
        await asyncio.sleep(delay_s)
        wire = Wire()
        with contextlib.suppress(OSError, Failed):
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await self._network.connect(self._host, *address, lambda: wire)
            await self.answer(wire, wire.send(request, self.name, version))
        wire.abort()

    async def answer(self, wire: Wire, sent: asyncio.Future[Any], timeout_s: float = REQUEST_TIMEOUT_S) -> Any:
        """Wait for the response to something sent."""
        try:
            async with asyncio.timeout(timeout_s):
                return await sent
        except TimeoutError:
            wire.abort()
            raise Failed(f"no answer within {timeout_s:.0f} s") from None

    def some_address(self) -> tuple[str, int]:
        """A broker to ask what any broker knows."""
        return self.random.choice(list(self.addresses.values()) + self._bootstrap)

    async def refresh(self, topics: list[str]) -> bool:
        """Learn who leads; False if no broker answered."""
        now = asyncio.get_running_loop().time()
        if now - self._refreshed_at < BACKOFF_S:
            await asyncio.sleep(BACKOFF_S * (0.5 + self.random.random()))
        self._refreshed_at = asyncio.get_running_loop().time()
        request = MetadataRequest([MetadataRequestTopic(name=topic) for topic in topics], False)
        try:
            response = await self.call(self.some_address(), request)
        except Failed:
            return False
        self.addresses = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        for topic in response.topics:
            self.topic_ids[topic.name] = topic.topic_id
            for partition in topic.partitions:
                known = self.leaders.get((topic.name, partition.partition_index), (-1, -1))
                # A broker that is behind must not take us back to an older leader.
                if partition.leader_epoch >= known[1]:
                    self.leaders[topic.name, partition.partition_index] = partition.leader_id, partition.leader_epoch
        return True

    def leader_address(self, topic: str, partition: int) -> tuple[str, int] | None:
        """Where to send for a partition, as far as known."""
        leader = self.leaders.get((topic, partition), (-1, -1))[0]
        return self.addresses.get(leader)

    def close(self) -> None:
        """Hang up everywhere."""
        for wire in self._wires.values():
            wire.abort()
        self._wires.clear()
