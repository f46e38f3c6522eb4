"""`ShareConsumer` for asyncio.

Generated from penstock.client.application.share by scripts/async_clients.py; edit that instead.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any, Generic, TypeVar, Unpack, overload

from penstock.client.application.aio.base import Polling
from penstock.client.application.connection import Connection
from penstock.client.application.records import Record
from penstock.client.application.serdes import Serde
from penstock.client.application.share import COMMIT_TIMEOUT_S, Outcome, ShareOptions
from penstock.client.application.share import ShareConsumer as SyncShareConsumer

V = TypeVar("V")


class ShareConsumer(Polling, Generic[V]):
    """Takes records of topics together with any number of other workers, more than there are partitions.

    See `penstock.ShareConsumer`, whose options it takes.

    >>> async def main():
    ...     async with penstock.aio.ShareConsumer(group="packers", value=str) as consumer:
    ...         await consumer.subscribe(["orders"])
    ...         record = await consumer.poll(0.1)
    ...         if record is not None:
    ...             consumer.acknowledge(record)
    ...             await consumer.commit_offsets()
    >>> asyncio.run(main())
    """

    @overload
    def __init__(
        self: ShareConsumer[bytes], connection: Connection | str | None = None, **options: Unpack[ShareOptions]
    ) -> None: ...

    @overload
    def __init__(
        self, connection: Connection | str | None = None, *, value: type[V] | Serde[V], **options: Unpack[ShareOptions]
    ) -> None: ...

    def __init__(self, connection: Connection | str | None = None, **options: Any) -> None:
        self._sync: SyncShareConsumer[V] = SyncShareConsumer(connection, **options)
        super().__init__(self._sync)
        self.connection = self._sync.connection
        self.group = self._sync.group

    async def __aiter__(self) -> AsyncIterator[Record[V]]:
        """All records, for ever."""
        while True:
            record = await self.poll(1.0)
            if record is not None:
                yield record

    async def subscribe(self, topics: str | Iterable[str]) -> None:
        """Take records of these topics.

        >>> async def main():
        ...     async with penstock.aio.ShareConsumer(group="packers") as consumer:
        ...         await consumer.subscribe(["orders"])
        >>> asyncio.run(main())
        """
        await self._run(self._sync.subscribe, topics)

    async def poll(self, timeout_s: float = 1.0) -> Record[V] | None:
        """The next record; None if there is none within the time. Those before it must be acknowledged.

        >>> async def main():
        ...     async with penstock.aio.ShareConsumer(group="packers") as consumer:
        ...         await consumer.subscribe(["orders"])
        ...         record = await consumer.poll(0.1)
        >>> asyncio.run(main())
        """
        await self._fill(timeout_s)
        return self._sync.poll(0) if self._sync.has_buffered else None

    async def poll_many(self, max_records: int = 500, timeout_s: float = 1.0) -> list[Record[V]]:
        """Up to so many records: what is there, as soon as there is one, or nothing after the time.

        >>> async def main():
        ...     async with penstock.aio.ShareConsumer(group="packers") as consumer:
        ...         await consumer.subscribe(["orders"])
        ...         records = await consumer.poll_many(10, timeout_s=0.1)
        >>> asyncio.run(main())
        """
        await self._fill(timeout_s)
        return self._sync.poll_many(max_records, 0) if self._sync.has_buffered else []

    @property
    def has_buffered(self) -> bool:
        """Whether the next `poll` returns at once.

        >>> async def main():
        ...     async with penstock.aio.ShareConsumer(group="packers") as consumer:
        ...         return consumer.has_buffered
        >>> asyncio.run(main())
        False
        """
        return self._sync.has_buffered

    def acknowledge(self, record: Record[object], outcome: Outcome = "accept") -> None:
        """Say what became of a record; it counts with the next `poll` or `commit_offsets`.

        >>> async def main():
        ...     async with penstock.aio.ShareConsumer(group="packers") as consumer:
        ...         await consumer.subscribe(["orders"])
        ...         for record in await consumer.poll_many(10, timeout_s=0.1):
        ...             consumer.acknowledge(record, "release")
        >>> asyncio.run(main())
        """
        self._sync.acknowledge(record, outcome)

    async def commit_offsets(self, timeout_s: float = COMMIT_TIMEOUT_S) -> None:
        """Send the acknowledgements, and wait until they are durable.

        >>> async def main():
        ...     async with penstock.aio.ShareConsumer(group="packers") as consumer:
        ...         await consumer.commit_offsets()
        >>> asyncio.run(main())
        """
        await self._run(self._sync.commit_offsets, timeout_s)

    async def close(self) -> None:
        """Leave the group; records that are not acknowledged go to others.

        >>> async def main():
        ...     consumer = penstock.aio.ShareConsumer(group="packers")
        ...     await consumer.close()
        >>> asyncio.run(main())
        """
        await self._close()
