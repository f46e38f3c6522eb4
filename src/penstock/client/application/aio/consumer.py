"""`Consumer` for asyncio.

Generated from penstock.client.application.consumer by scripts/async_clients.py; edit that instead.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Generic, TypeVar, Unpack, overload

from penstock.client.application.aio.base import Polling
from penstock.client.application.connection import Connection
from penstock.client.application.consumer import MAX_POLL_RECORDS, ConsumerOptions, OnPartitions, Partition, Start
from penstock.client.application.consumer import Consumer as SyncConsumer
from penstock.client.application.records import Record
from penstock.client.application.serdes import Serde

V = TypeVar("V")


class Consumer(Polling, Generic[V]):
    """Reads records of topics.

    See `penstock.Consumer`, whose options it takes.

    >>> async def main():
    ...     async with penstock.aio.Consumer(group="billing", value=str) as consumer:
    ...         await consumer.subscribe(["orders"])
    ...         record = await consumer.poll(10)
    ...         await consumer.commit_offsets()
    ...     return record.topic
    >>> asyncio.run(main())
    'orders'
    """

    @overload
    def __init__(
        self: Consumer[bytes], connection: Connection | str | None = None, **options: Unpack[ConsumerOptions]
    ) -> None: ...

    @overload
    def __init__(
        self,
        connection: Connection | str | None = None,
        *,
        value: type[V] | Serde[V],
        **options: Unpack[ConsumerOptions],
    ) -> None: ...

    def __init__(self, connection: Connection | str | None = None, **options: Any) -> None:
        self._sync: SyncConsumer[V] = SyncConsumer(connection, **options)
        super().__init__(self._sync)
        self.connection = self._sync.connection
        self.group = self._sync.group

    async def __aiter__(self) -> AsyncIterator[Record[V]]:
        """All records, for ever.

        >>> async def main():
        ...     async with penstock.aio.Consumer() as consumer:
        ...         await consumer.subscribe(["orders"])
        ...         async for record in consumer:
        ...             break
        >>> asyncio.run(main())
        """
        while True:
            record = await self.poll(1.0)
            if record is not None:
                yield record

    async def subscribe(
        self,
        topics: str | Iterable[str],
        *,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
    ) -> None:
        """Read these topics; a name that starts with `^` is a pattern. The functions are called in another thread.

        >>> async def main():
        ...     async with penstock.aio.Consumer(group="invoices") as consumer:
        ...         await consumer.subscribe(["orders"])
        >>> asyncio.run(main())
        """
        await self._run(self._sync.subscribe, topics, on_assigned=on_assigned, on_revoked=on_revoked)

    async def poll(self, timeout_s: float = 1.0) -> Record[V] | None:
        """The next record; None if there is none within the time.

        >>> async def main():
        ...     async with penstock.aio.Consumer() as consumer:
        ...         await consumer.subscribe(["orders"])
        ...         return (await consumer.poll(10)).offset
        >>> asyncio.run(main())
        0
        """
        await self._fill(timeout_s)
        return self._sync.poll(0) if self._sync.has_buffered else None

    async def poll_many(self, max_records: int = MAX_POLL_RECORDS, timeout_s: float = 1.0) -> list[Record[V]]:
        """Up to so many records: what is there, as soon as there is one, or nothing after the time.

        >>> async def main():
        ...     async with penstock.aio.Consumer() as consumer:
        ...         await consumer.subscribe(["orders"])
        ...         return len(await consumer.poll_many(2, timeout_s=10)) in (1, 2)
        >>> asyncio.run(main())
        True
        """
        await self._fill(timeout_s)
        return self._sync.poll_many(max_records, 0) if self._sync.has_buffered else []

    @property
    def has_buffered(self) -> bool:
        """Whether the next `poll` returns at once.

        >>> async def main():
        ...     async with penstock.aio.Consumer() as consumer:
        ...         return consumer.has_buffered
        >>> asyncio.run(main())
        False
        """
        return self._sync.has_buffered

    async def commit_offsets(self, offsets: Mapping[Partition, int] | None = None) -> None:
        """Commit what `poll` has handed out so far, or the given next offsets, and wait until it is durable.

        >>> async def main():
        ...     async with penstock.aio.Consumer(group="billing") as consumer:
        ...         await consumer.subscribe(["orders"])
        ...         record = await consumer.poll(10)
        ...         await consumer.commit_offsets()
        >>> asyncio.run(main())
        """
        await self._run(self._sync.commit_offsets, offsets)

    async def committed(self) -> dict[Partition, int]:
        """The group's committed offsets of the assigned partitions; those without one are left out.

        >>> async def main():
        ...     async with penstock.aio.Consumer(group="new") as consumer:
        ...         return await consumer.committed()
        >>> asyncio.run(main())
        {}
        """
        return await self._run(self._sync.committed)

    def assignment(self) -> list[Partition]:
        """The partitions that this consumer reads now.

        >>> async def main():
        ...     async with penstock.aio.Consumer(group="billing") as consumer:
        ...         return consumer.assignment()
        >>> asyncio.run(main())
        []
        """
        return self._sync.assignment()

    async def seek(self, topic: str, partition: int, offset: int | Start) -> None:
        """Read a partition from an offset on, or from its first or last record.

        >>> async def main():
        ...     async with penstock.aio.Consumer() as consumer:
        ...         await consumer.subscribe(["orders"])
        ...         await consumer.seek("orders", 0, "earliest")
        >>> asyncio.run(main())
        """
        await self._run(self._sync.seek, topic, partition, offset)

    async def seek_to_time(self, timestamp_ms: int) -> None:
        """Read the assigned partitions from the first record at or after a time on.

        >>> async def main():
        ...     async with penstock.aio.Consumer() as consumer:
        ...         await consumer.subscribe(["orders"])
        ...         await consumer.seek_to_time(0)
        >>> asyncio.run(main())
        """
        await self._run(self._sync.seek_to_time, timestamp_ms)

    async def rewind(self) -> None:
        """Read again from the committed offsets on, or from where a new group starts.

        >>> async def main():
        ...     async with penstock.aio.Consumer(group="billing") as consumer:
        ...         await consumer.rewind()
        >>> asyncio.run(main())
        """
        await self._run(self._sync.rewind)

    async def pause(self, *partitions: Partition) -> None:
        """Stop reading these partitions, or all, while staying a member of the group; keep calling `poll`.

        >>> async def main():
        ...     async with penstock.aio.Consumer() as consumer:
        ...         await consumer.subscribe(["orders"])
        ...         await consumer.pause(("orders", 0))
        >>> asyncio.run(main())
        """
        await self._run(self._sync.pause, *partitions)

    async def resume(self, *partitions: Partition) -> None:
        """Go on with paused partitions, or all.

        >>> async def main():
        ...     async with penstock.aio.Consumer() as consumer:
        ...         await consumer.subscribe(["orders"])
        ...         await consumer.resume()
        >>> asyncio.run(main())
        """
        await self._run(self._sync.resume, *partitions)

    def ended(self) -> set[Partition]:
        """The partitions that were read to their end at some time. Needs properties={"enable.partition.eof": True}.

        >>> async def main():
        ...     async with penstock.aio.Consumer() as consumer:
        ...         return consumer.ended()
        >>> asyncio.run(main())
        set()
        """
        return self._sync.ended()

    async def lag(self) -> dict[Partition, int]:
        """How many records of each assigned partition are still to be handed out, as far as this consumer knows.

        >>> async def main():
        ...     async with penstock.aio.Consumer() as consumer:
        ...         await consumer.subscribe(["orders"])
        ...         return all((records >= 0 for records in (await consumer.lag()).values()))
        >>> asyncio.run(main())
        True
        """
        return await self._run(self._sync.lag)

    async def close(self) -> None:
        """Leave the group and close. Nothing is committed by it.

        >>> async def main():
        ...     consumer = penstock.aio.Consumer()
        ...     await consumer.close()
        >>> asyncio.run(main())
        """
        await self._close()
