"""What a producer for asyncio does differently: it waits for room in the buffer, and for one record."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from penstock.client.application.aio.worker import Worker
from penstock.client.application.connection import Connection
from penstock.client.application.delivery import DELIVERY_TIMEOUT_S
from penstock.client.application.errors import PenstockError, ProducerFenced, TimedOut
from penstock.client.application.producer import ONLY_FAILURES
from penstock.client.application.producer import Producer as SyncProducer
from penstock.client.application.records import Headers, Stored
from penstock.client.closing import AsyncClosing

if TYPE_CHECKING:
    from penstock.client.application.aio.consumer import Consumer

P = ParamSpec("P")
T = TypeVar("T")
FULL_PAUSE_S = 0.01
REPORT_POLL_S = 0.05


class Sending(AsyncClosing):
    """Sends records with a blocking producer, whose other calls are made in a thread."""

    def __init__(
        self,
        connection: Connection | str | None = None,
        *,
        value: Any = None,
        transactional_id: str | None = None,
        transaction_timeout_s: float = 60.0,
        delivery_timeout_s: float = DELIVERY_TIMEOUT_S,
        max_block_s: float = 60.0,
        compression: str | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        self._sync = SyncProducer(
            connection,
            value=value,
            transactional_id=transactional_id,
            transaction_timeout_s=transaction_timeout_s,
            delivery_timeout_s=delivery_timeout_s,
            max_block_s=0,
            compression=compression,
            properties={ONLY_FAILURES: False, **(properties or {})},
        )
        self.connection = self._sync.connection
        self._max_block_s = max_block_s
        self._worker = Worker("penstock-producer")
        self._reporter: threading.Thread | None = None
        self._closing = threading.Event()

    async def send(
        self,
        topic: str,
        key: Any = None,
        value: Any = None,
        *,
        headers: Headers | Mapping[str, bytes | str | None] | None = None,
        partition: int | None = None,
        timestamp_ms: int = 0,
        spread: int = 1,
    ) -> None:
        """Put a record into the buffer; waits up to `max_block_s` while the buffer is full.

        >>> async def main():
        ...     async with penstock.aio.Producer() as producer:
        ...         await producer.send("orders", "alice", "tea")
        >>> asyncio.run(main())
        """
        if spread != 1:
            # The first time this queries a broker.
            await self._worker.run(self._sync.partition_count, topic)
        try:
            self._sync.send(
                topic, key, value, headers=headers, partition=partition, timestamp_ms=timestamp_ms, spread=spread
            )
        except TimedOut:
            await self._send_later(
                topic, key, value, headers=headers, partition=partition, timestamp_ms=timestamp_ms, spread=spread
            )

    async def send_many(self, topic: str, records: Iterable[tuple[Any, Any]]) -> int:
        """Put (key, value) pairs into the buffer; returns how many.

        >>> async def main():
        ...     async with penstock.aio.Producer() as producer:
        ...         return await producer.send_many("orders", [("alice", "tea"), ("bob", "coffee")])
        >>> asyncio.run(main())
        2
        """
        count = 0
        send = self._sync.send
        for key, value in records:
            try:
                send(topic, key, value)
            except TimedOut:
                await self._send_later(topic, key, value)
            count += 1
        return count

    async def deliver(self, topic: str, key: Any = None, value: Any = None, **options: Any) -> Stored:
        """Send a record and wait until it is stored; returns where.

        >>> async def main():
        ...     async with penstock.aio.Producer() as producer:
        ...         return await producer.deliver("orders", "alice", "tea")
        >>> asyncio.run(main()).topic
        'orders'
        """
        loop = asyncio.get_running_loop()
        stored: asyncio.Future[Stored] = loop.create_future()

        def settle(error: PenstockError | None, where: Stored | None) -> None:
            if stored.done():
                return
            if error is not None:
                stored.set_exception(error)
            elif where is not None:
                stored.set_result(where)

        def report(error: PenstockError | None, where: Stored | None) -> None:
            loop.call_soon_threadsafe(settle, error, where)

        self._start_reports()
        try:
            self._sync.send(topic, key, value, on_delivery=report, **options)
        except TimedOut:
            await self._send_later(topic, key, value, on_delivery=report, **options)
        return await stored

    @asynccontextmanager
    async def transaction(self, consumer: Consumer[Any] | None = None) -> AsyncIterator[Self]:
        """Everything sent inside counts together, or not at all; see `penstock.Producer.transaction`.

        >>> async def main():
        ...     async with penstock.aio.Producer(transactional_id="ship-2") as producer:
        ...         async with producer.transaction():
        ...             await producer.send("orders", "alice", "tea")
        >>> asyncio.run(main())
        """
        scope = self._sync.transaction(None if consumer is None else consumer._sync)
        try:
            await self._worker.run_to_end(scope.__enter__)
            yield self
        except ProducerFenced:
            raise
        except BaseException as error:
            # Also if the transaction is canceled while it begins.
            if not await self._worker.run_to_end(scope.__exit__, type(error), error, error.__traceback__):
                raise
        else:
            await self._worker.run_to_end(scope.__exit__, None, None, None)

    async def close(self, timeout_s: float = 30.0) -> None:
        """Deliver what is buffered, and close. Raises as `flush` does.

        >>> async def main():
        ...     await penstock.aio.Producer().close()
        >>> asyncio.run(main())
        """
        self._closing.set()
        if self._reporter is not None:
            await self._worker.run(self._reporter.join)
        await self._worker.close(lambda: self._sync.close(timeout_s))

    async def _run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._worker.run(call, *args, **kwargs)

    async def _send_later(self, topic: str, key: Any, value: Any, **options: Any) -> None:
        deadline = asyncio.get_running_loop().time() + self._max_block_s
        while True:
            await asyncio.sleep(FULL_PAUSE_S)
            try:
                return self._sync.send(topic, key, value, **options)
            except TimedOut:
                if asyncio.get_running_loop().time() > deadline:
                    raise

    def _start_reports(self) -> None:
        if self._reporter is None:
            self._reporter = threading.Thread(target=self._report, name="penstock-reports", daemon=True)
            self._reporter.start()

    def _report(self) -> None:
        while not self._closing.is_set():
            self._sync.serve_reports(REPORT_POLL_S)
