"""`AppHarness`: an application in a test, without a broker or with one, and with time in the test's hands."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from penstock.app.application import App
from penstock.app.context import Message
from penstock.app.policy import REASON
from penstock.app.processing.share_runner import ShareSubscriptionRunner
from penstock.app.processing.subscription_runner import SubscriptionRunner
from penstock.app.processing.transport import Clock
from penstock.app.processing.worker import AnyRunner, Worker
from penstock.app.subscription import Subscription
from penstock.client.application.connection import Connection
from penstock.client.application.records import Headers, Record
from penstock.client.application.serdes import decoder_of, is_record_type
from penstock.testing.memory import MemoryBroker, MemoryReplies, MemoryShare, MemorySource

if TYPE_CHECKING:
    from penstock.client.application.admin import Admin
    from penstock.client.application.producer import Producer
    from penstock.testing.cluster import Cluster

CHECK_INTERVAL_S = 0.002
IDLE_CHECKS = 3
SETTLE_S_MAX = 60.0
# In the dead letters that brokers write for share groups.
BROKER_REASON = "__dlq.errors.message"


class DeadLetter(NamedTuple):
    """A dead-lettered record, and the reason."""

    record: Record[bytes]
    reason: str


class ManualClock(Clock):
    """Time that passes only when a test advances it."""

    def __init__(self) -> None:
        self._now = 0.0
        self._waiting: list[tuple[float, asyncio.Event]] = []

    def now(self) -> float:
        """Seconds that the test has advanced so far."""
        return self._now

    async def wait(self, event: asyncio.Event, until: float | None) -> None:
        """Wait for an event, or until the test has advanced to a time."""
        if until is not None and until <= self._now:
            return
        if until is not None:
            self._waiting.append((until, event))
        await event.wait()

    def next_due(self) -> float | None:
        """The earliest time that a task waits for; None without one."""
        return min((until for until, _ in self._waiting), default=None)

    def advance_to(self, now: float) -> None:
        """Set the time, and wake the tasks that waited for it."""
        self._now = now
        for until, event in self._waiting:
            if until <= self._now:
                event.set()
        self._waiting = [(until, event) for until, event in self._waiting if until > self._now]


class AppHarness:
    """Runs an application's handlers in a test. Use it as a context manager.

    >>> app = App("billing")
    >>> @app.subscribe("orders", retries=2, delay_s=10, publish="invoices", reply=True)
    ... def bill(order: dict) -> dict:
    ...     return {"total": order["amount"] * 2}
    >>> with AppHarness(app) as harness:
    ...     harness.send("orders", "alice", {"amount": 2})
    ...     harness.send("orders", "bob", {})
    ...     harness.run()
    ...     before = len(harness.dead_letters("orders"))
    ...     harness.advance(60)
    ...     after = harness.dead_letters("orders")[0].reason
    ...     record = harness.records("invoices")[0]
    ...     harness.values("invoices", dict), record.key, before, after
    ...     harness.request("orders", "carol", {"amount": 4}, returns=dict)
    ([{'total': 4}], 'alice', 0, "KeyError: 'amount'")
    {'total': 8}

    Without a broker there is no schema registry either: values are plain JSON, whatever `schemas` the application has.

    `run` returns when nothing is left to do until time passes; `advance` lets time pass for retries, and runs. With a
    `cluster` of `penstock.testing` the same test runs on a real broker.
    """

    def __init__(self, app: App, cluster: Cluster | str | None = None, *, partitions: int = 3) -> None:
        self._app = app
        self._clock = ManualClock()
        self._memory = MemoryBroker(lambda: int(time.time() * 1000), partitions) if cluster is None else None
        self._servers = cluster if isinstance(cluster, str) or cluster is None else cluster.bootstrap_servers
        self._connection = replace(Connection.of(self._servers), registry=app.connection.registry)
        self._schemas = app.make_schemas(self._connection) if cluster is not None else None
        self._partitions = partitions
        # In a thread of its own, so that members stay in their groups while the test does something else.
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="penstock-harness", daemon=True)
        self._tasks: list[asyncio.Task[None]] = []
        self._runners: list[AnyRunner] = []
        self._leave: Any = None
        self._producer: Producer | None = None
        self._admin: Admin | None = None

    def __enter__(self) -> Self:
        if self._servers is not None:
            self._connect(self._servers)
        self._thread.start()
        self._do(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._do(self._stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            for client in (self._producer, self._admin):
                if client is not None:
                    client.close()

    def send(
        self,
        topic: str,
        key: Any = None,
        value: Any = None,
        headers: Headers | Mapping[str, bytes | str | None] = (),
    ) -> None:
        """Store a record."""
        if self._memory is not None:
            self._memory.append(Message(topic, key, value, headers))  # type: ignore[arg-type]
        else:
            assert self._producer is not None
            serde = self._serde(type(value))
            encoded = value if serde is None else serde.encode(value, topic)
            self._producer.deliver(topic, key, encoded, headers=headers or None)

    def request(
        self, topic: str, key: Any = None, value: Any = None, *, returns: Any = bytes, timeout_s: float = 30.0
    ) -> Any:
        """Send a request and return its reply, as `App.request` does. The timeout is in real time."""
        reply = self._app.request(topic, key, value, returns=returns, timeout_s=timeout_s)
        return asyncio.run_coroutine_threadsafe(reply, self._loop).result()

    def run(self, timeout_s: float = SETTLE_S_MAX) -> None:
        """Process records until nothing is left to do until time passes."""
        self._do(self._settle(timeout_s))

    def advance(self, seconds: float) -> None:
        """Let time pass, as far as retries and batches are concerned, and run whenever something is due."""
        self.run()
        end = self._clock.now() + seconds
        while (due := self._clock.next_due()) is not None and due <= end:
            self._loop.call_soon_threadsafe(self._clock.advance_to, due)
            self.run()
        self._loop.call_soon_threadsafe(self._clock.advance_to, end)
        self.run()

    def records(self, topic: str, value: Any = bytes) -> list[Record[Any]]:
        """All committed records of a topic, partition by partition."""
        decode = decoder_of(value)
        if self._memory is not None:
            return [Record(message, decode) for message in self._memory.records(topic)]
        return self._read(topic, self._serde(value) or value)

    def values(self, topic: str, value: Any = bytes) -> list[Any]:
        """The values of all committed records of a topic."""
        return [record.value for record in self.records(topic, value)]

    def dead_letters(self, topic: str) -> list[DeadLetter]:
        """The dead-lettered records of a topic."""
        letters = self.records(f"dlq.{topic}")
        return [
            DeadLetter(record, (record.header(REASON) or record.header(BROKER_REASON) or b"").decode())
            for record in letters
        ]

    def _serde(self, kind: Any) -> Any | None:
        """The serde of the application's schemas for a type with fields."""
        return self._schemas.serde(kind) if self._schemas is not None and is_record_type(kind) else None

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _connect(self, servers: str) -> None:
        from penstock.client.application.admin import Admin
        from penstock.client.application.producer import Producer

        self._producer, self._admin = Producer(servers), Admin(servers)
        for subscription in self._app.subscriptions:
            published = [subscription.publish] if subscription.publish else []
            letters = [subscription.policy.dead_letter_topic(topic) for topic in subscription.topics]
            for topic in filter(None, (*subscription.topics, *published, *letters)):
                self._admin.create_topic(topic, self._partitions, exist_ok=True)

    async def _start(self) -> None:
        if self._servers is not None:
            await asyncio.to_thread(self._app.register_schemas, self._connection)
        self._app.open_requests(self._connection, MemoryReplies(self._memory) if self._memory is not None else None)
        living = self._app.living()
        state = await living.__aenter__()
        self._leave = living.__aexit__
        for subscription in self._app.subscriptions:
            runner = self._make_runner(subscription, state)
            self._runners.append(runner)
            self._tasks.append(asyncio.create_task(runner.run()))

    def _make_runner(self, subscription: Subscription, state: Any) -> AnyRunner:
        if self._memory is None:
            worker = Worker(self._app, uuid.uuid4().hex[:8], self._clock, knows_ends=True)
            return worker.make_runner(subscription, state, self._connection)
        caller = self._app.make_handler_caller(subscription, state)
        counters = self._app.counters[subscription.name]
        if subscription.share:
            return ShareSubscriptionRunner(subscription, caller, MemoryShare(self._memory, subscription), counters)
        source = MemorySource(self._memory, subscription)
        return SubscriptionRunner(subscription, caller, source, source, self._clock, counters)

    async def _settle(self, timeout_s: float) -> None:
        """Return once all runners are idle in several checks in a row: one subscription may read what another sends."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        idle_checks = 0
        while idle_checks < IDLE_CHECKS:
            await asyncio.sleep(CHECK_INTERVAL_S)
            for task in self._tasks:
                if task.done():
                    task.result()
                    raise RuntimeError("the application has stopped")
            idle_checks = idle_checks + 1 if all(runner.is_idle for runner in self._runners) else 0
            if asyncio.get_running_loop().time() > deadline:
                raise TimeoutError(f"the application was still busy after {timeout_s:g} s")

    async def _stop(self) -> None:
        for runner in self._runners:
            runner.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._leave is not None:
            await self._leave(None, None, None)

    def _read(self, topic: str, value: Any) -> list[Record[Any]]:
        from penstock.client.application.consumer import Consumer

        assert self._admin is not None
        found: list[Record[Any]] = []
        settings = {"enable.partition.eof": True}
        partitions = self._admin.describe_topic(topic).partition_count
        with Consumer(self._servers, value=value, properties=settings, max_poll_records=1) as consumer:
            consumer.subscribe(topic)
            deadline = time.monotonic() + SETTLE_S_MAX
            while len(consumer.ended()) < partitions and time.monotonic() < deadline:
                record = consumer.poll(0.2)
                if record is not None:
                    found.append(record)
        return sorted(found, key=lambda record: (record.partition, record.offset))
