"""`Producer` for asyncio.

Generated from penstock.client.application.producer by scripts/async_clients.py; edit that instead.
"""

from __future__ import annotations

from typing import Any

from penstock.client.application.aio.sending import Sending


class Producer(Sending):
    """Sends records to topics.

    See `penstock.Producer`, whose options it takes.

    >>> async def main():
    ...     async with penstock.aio.Producer() as producer:
    ...         await producer.send("orders", "alice", "1 tea")
    ...         await producer.send("orders", "bob", {"item": "coffee", "amount": 2})
    >>> asyncio.run(main())
    """

    async def flush(self, timeout_s: float = 30.0) -> None:
        """Wait until every record is stored; raises DeliveryFailed for those that were not, TimedOut after the time.

        >>> async def main():
        ...     async with penstock.aio.Producer() as producer:
        ...         await producer.send("orders", "alice", "tea")
        ...         await producer.flush()
        >>> asyncio.run(main())
        """
        await self._run(self._sync.flush, timeout_s)

    async def partition_count(self, topic: str) -> int:
        """How many partitions a topic has; remembered.

        >>> async def main():
        ...     async with penstock.aio.Producer() as producer:
        ...         return await producer.partition_count("orders") >= 1
        >>> asyncio.run(main())
        True
        """
        return await self._run(self._sync.partition_count, topic)

    async def partitions_of(self, topic: str, key: Any, spread: int = 1) -> list[int]:
        """The partitions that records with this key are in, when they are sent with this `spread`.

        >>> async def main():
        ...     async with penstock.aio.Producer() as producer:
        ...         return len(await producer.partitions_of("orders", "alice"))
        >>> asyncio.run(main())
        1
        """
        return await self._run(self._sync.partitions_of, topic, key, spread)
