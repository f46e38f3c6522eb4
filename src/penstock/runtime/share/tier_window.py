"""What a share-partition reads of records that are only in object storage.

Looking for records never waits. What is not in the window is requested, and the caller is notified to look again when
it has arrived, or has failed: the reason is raised once, and the look after that tries again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from penstock.core.share.batches import Aborted, batches_in
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.env import Env
from penstock.runtime.replication.partition import Partition
from penstock.runtime.tier.remote_logs import TierRead
from penstock.storage.timestamps import TimestampOffset
from penstock.wire.records import BatchHeader

WINDOW_BYTES = 1024 * 1024
# Too many others read, or the store is slow: so long is waited before the next try.
PAUSE_S = 0.1


class Tier(Protocol):
    """What is used of the broker's tiered storage."""

    def read(
        self, partition: Partition, offset: int, size_max: int, *, committed_only: bool
    ) -> Awaitable[TierRead | None]: ...
    def find_time(self, partition: Partition, timestamp: int) -> Awaitable[TimestampOffset | None]: ...


class Part(NamedTuple):
    """Whole batches, and the aborted transactions among them."""

    data: memoryview
    aborted: tuple[Aborted, ...]


NOTHING = Part(memoryview(b""), ())


class TierWindow:
    """The last part that was read for one share-partition; `arrived` is called when there is another."""

    def __init__(self, env: Env, partition: Partition, tier: Tier, arrived: Callable[[], None]) -> None:
        self._env = env
        self._partition = partition
        self._tier = tier
        self._arrived = arrived
        self._part = NOTHING
        self._headers: tuple[BatchHeader, ...] = ()
        self._committed_only = False
        self._failure: ApiError | None = None
        self._loading: asyncio.Task[None] | None = None

    @property
    def is_loading(self) -> bool:
        """Whether something is on its way."""
        return self._loading is not None

    def forget(self) -> None:
        """What comes next is on disk."""
        self._part, self._headers = NOTHING, ()

    def take(self, offset: int, size_max: int, *, committed_only: bool, at_least_one: bool) -> Part:
        """Batches from the one with `offset` on; nothing while they are on their way. Raises ApiError."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if self._committed_only == committed_only:
            position = 0
            for number, header in enumerate(self._headers):
                if header.last_offset >= offset and self._headers[0].base_offset <= offset:
                    return self._cut(number, position, size_max, at_least_one=at_least_one)
                position += header.size_bytes
        if self._loading is None:
            load = self._load(offset, committed_only)
            self._loading = self._env.spawn(load, f"read {self._partition.name} for a share group")
        return NOTHING

    def _cut(self, number: int, position: int, size_max: int, *, at_least_one: bool) -> Part:
        end = position
        for header in self._headers[number:]:
            if end + header.size_bytes - position > size_max and not (at_least_one and end == position):
                break
            end += header.size_bytes
        return Part(self._part.data[position:end], self._part.aborted)

    async def wait(self) -> None:
        """Until what was requested has arrived, or has failed."""
        if self._loading is not None:
            await asyncio.wait((self._loading,))

    async def _load(self, offset: int, committed_only: bool) -> None:
        try:
            read = await self._tier.read(self._partition, offset, WINDOW_BYTES, committed_only=committed_only)
            if read is None:
                await asyncio.sleep(PAUSE_S)
                return
            aborted = tuple(Aborted(one.producer_id, one.first_offset, one.last_offset) for one in read.aborted)
            self._part = Part(memoryview(read.data), aborted)
            self._headers = batches_in(read.data, offset).headers
            self._committed_only = committed_only
        except ApiError as error:
            self._failure = error
        finally:
            self._loading = None
            self._arrived()


def late(partition: Partition) -> ApiError:
    """The error for what has not arrived."""
    text = f"{partition.name}: object storage takes too long to answer"
    return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, text)
