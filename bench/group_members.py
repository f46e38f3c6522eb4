"""Many members of groups in one process: one connection each, and nothing but what the protocol asks of them."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Sequence
from functools import partial
from struct import unpack_from
from typing import Any, cast

from penstock.wire.apis import APIS, request_class, response_class, response_header_version
from penstock.wire.codec import decode, encoder
from penstock.wire.frame import RequestHeader, decode_response_header, encode_request
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from penstock.wire.primitives import Buffer

KEYS = {request_class(key).__name__: key for key in APIS}
# The last version of JoinGroup that does not ask members to come twice.
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, CONSUMER_HEARTBEAT_VERSION = 3, 3, 4, 1
SESSION_TIMEOUT_MS = 45_000
SIZE_BYTES = 4
CONNECTS_AT_ONCE = 50
ROUNDS_MAX = 60


def frame_of(request: Any, version: int, client_id: str) -> bytes:
    """A whole request, ready to send as often as one likes."""
    body: list[Buffer] = []
    encoder(type(request), version)(request, body)
    return b"".join(encode_request(RequestHeader(KEYS[type(request).__name__], version, 1, client_id), body))


class Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._waiting: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) < SIZE_BYTES:
            return
        end = SIZE_BYTES + int(unpack_from(">i", self._received)[0])
        if len(self._received) >= end and self._waiting is not None:
            frame, self._received = bytes(self._received[SIZE_BYTES:end]), self._received[end:]
            self._waiting.set_result(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionError(f"the broker hung up: {exc}"))

    async def exchange(self, frame: bytes) -> bytes:
        """Send a frame and return the answer to it, without its size."""
        assert self._transport is not None
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(frame)
        return await self._waiting

    async def ask(self, request: Any, version: int, client_id: str = "bench") -> Any:
        """Send a request and return its response."""
        key = KEYS[type(request).__name__]
        answer = await self.exchange(frame_of(request, version, client_id))
        _, position = decode_response_header(answer, response_header_version(key, version))
        return decode(response_class(key), version, answer[position:])

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class ClassicMember:
    """A member of a classic group whose leader assigns nothing."""

    def __init__(self, group: str, number: int, topic: str) -> None:
        self._group = group
        self._topic = topic
        self.connection = Connection()
        self.name = f"{group}-{number}"
        self.heartbeat = b""

    async def join(self) -> None:
        """Join, sync and be ready to send heartbeats. Everybody of the group has to do this at once."""
        subscription = b"\0\0\0\0\0\1" + len(self._topic).to_bytes(2, "big") + self._topic.encode() + bytes(4)
        request = JoinGroupRequest(
            self._group,
            SESSION_TIMEOUT_MS,
            SESSION_TIMEOUT_MS,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", subscription)],
        )
        joined = await self.connection.ask(request, JOIN_VERSION, self.name)
        assert joined.error_code == 0, joined
        assignments = [SyncGroupRequestAssignment(row.member_id, bytes(10)) for row in joined.members]
        sync = SyncGroupRequest(self._group, joined.generation_id, joined.member_id, assignments=assignments)
        synced = await self.connection.ask(sync, SYNC_VERSION, self.name)
        assert synced.error_code == 0, synced
        heartbeat = HeartbeatRequest(self._group, joined.generation_id, joined.member_id)
        self.heartbeat = frame_of(heartbeat, HEARTBEAT_VERSION, self.name)


class ConsumerMember:
    """A member of a consumer group that takes and gives up partitions as it is told."""

    def __init__(self, group: str, number: int, topic: str) -> None:
        self._group = group
        self._topic = topic
        self.connection = Connection()
        self.name = f"{group}-{number}"
        self.heartbeat = b""

    async def join(self) -> None:
        """Send heartbeats until nothing changes any more."""
        epoch, owned, calm = 0, (), 0
        for _ in range(ROUNDS_MAX):
            request = ConsumerGroupHeartbeatRequest(
                self._group,
                self.name,
                epoch,
                rebalance_timeout_ms=SESSION_TIMEOUT_MS,
                subscribed_topic_names=[self._topic],
                topic_partitions=owned,
            )
            answer = await self.connection.ask(request, CONSUMER_HEARTBEAT_VERSION, self.name)
            assert answer.error_code == 0, answer
            calm = calm + 1 if answer.member_epoch == epoch and answer.assignment is None else 0
            epoch = answer.member_epoch
            if answer.assignment is not None:
                owned = answer.assignment.topic_partitions
            if calm == 3:
                break
            await asyncio.sleep(0.3)
        steady = ConsumerGroupHeartbeatRequest(self._group, self.name, epoch)
        self.heartbeat = frame_of(steady, CONSUMER_HEARTBEAT_VERSION, self.name)


Member = ClassicMember | ConsumerMember
KINDS: dict[str, type[ClassicMember] | type[ConsumerMember]] = {"classic": ClassicMember, "consumer": ConsumerMember}


async def connect(members: Sequence[Member], host: str, port: int) -> None:
    """Open everybody's connection."""
    loop = asyncio.get_running_loop()
    for start in range(0, len(members), CONNECTS_AT_ONCE):
        some = members[start : start + CONNECTS_AT_ONCE]
        await asyncio.gather(
            *(loop.create_connection(partial(_itself, member.connection), host, port) for member in some)
        )


def _itself(connection: Connection) -> Connection:
    return connection


async def beat(members: Sequence[Member], interval_s: float, seconds: float) -> list[float]:
    """Everybody sends a heartbeat every interval, evenly spread; returns how long each answer took, in seconds."""
    took: list[float] = []
    loop = asyncio.get_running_loop()
    # A collection that walks over all members would look like a slow answer.
    gc.collect()
    gc.freeze()
    until = loop.time() + seconds

    async def live(member: Member, first: float) -> None:
        due = first
        while due < until:
            await asyncio.sleep(max(0.0, due - loop.time()))
            began = time.perf_counter()
            await member.connection.exchange(member.heartbeat)
            took.append(time.perf_counter() - began)
            due += interval_s

    begin = loop.time()
    await asyncio.gather(
        *(live(member, begin + interval_s * number / len(members)) for number, member in enumerate(members))
    )
    return took
