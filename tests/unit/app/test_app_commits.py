"""Transactions of an application whose group rebalances meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from confluent_kafka import TopicPartition

from penstock.app import App, Message
from penstock.app.processing import kafka, outbox, progress, subscription_runner
from penstock.app.processing.kafka import KafkaSink, Membership
from penstock.app.processing.key_queue import Partition
from penstock.app.processing.outbox import COMMIT_TRIES, Outbox
from penstock.app.processing.progress import decode_ranges
from penstock.app.processing.subscription_runner import SubscriptionRunner
from penstock.app.processing.transport import Clock, Position
from penstock.app.subscription import Subscription
from penstock.client.application.connection import Connection
from penstock.client.application.errors import PenstockError, TransactionAborted
from penstock.testing.memory import MemoryBroker, MemorySource
from support.processes import eventually

ORDERS: Partition = ("orders", 0)
POSITIONS = [TopicPartition(*ORDERS, 1)]
NOWHERE = Connection("127.0.0.1:1")


class FencingProducer:
    """A stand-in for a producer whose broker accepts one member epoch only."""

    epoch = 2
    epochs_sent: ClassVar[list[int]] = []

    def __init__(self, *_: Any, **__: Any) -> None: ...

    @contextmanager
    def transaction(self) -> Iterator[None]:
        yield

    def send(self, *_: Any, **__: Any) -> None: ...

    def send_offsets(self, _: Any, group_metadata: int) -> None:
        self.epochs_sent.append(group_metadata)
        if group_metadata != self.epoch:
            raise TransactionAborted("the transaction is aborted", code="ILLEGAL_GENERATION")

    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def _producer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "Producer", FencingProducer)
    monkeypatch.setattr(outbox, "COMMIT_BACKOFF_S", 0.0)
    monkeypatch.setattr(FencingProducer, "epochs_sent", [])


def subscription_of(app: App) -> Subscription:
    @app.subscribe("orders", publish="shipments", guarantee="exactly-once", commit_interval_s=0.01)
    def ship(value: str) -> str:
        return value

    return app.subscriptions[0]


def test_each_commit_attempt_uses_the_current_member_epoch() -> None:
    epochs = iter([1, 1, 2])
    Outbox(NOWHERE, "ship-1", frozenset()).commit([], POSITIONS, lambda: next(epochs))
    assert FencingProducer.epochs_sent == [1, 1, 2]


def test_commit_fails_after_all_attempts_with_a_stale_epoch() -> None:
    with pytest.raises(TransactionAborted):
        Outbox(NOWHERE, "ship-1", frozenset()).commit([], POSITIONS, lambda: 1)
    assert FencingProducer.epochs_sent == [1] * COMMIT_TRIES


@pytest.mark.parametrize("revocations", [0, 1])
def test_positions_from_before_a_revocation_are_not_committed_in_a_later_epoch(revocations: int) -> None:
    """Another member may own the partitions since then."""

    class Source:
        def __init__(self) -> None:
            self.memberships = [Membership(1, 0), Membership(1, 0)]

        @property
        def membership(self) -> Membership:
            return self.memberships.pop(0) if self.memberships else Membership(2, revocations)

    source: Any = Source()
    sink = KafkaSink(NOWHERE, source, subscription_of(App("shop")), "ship-1")
    if revocations:
        with pytest.raises(TransactionAborted):
            sink.commit([], {ORDERS: (1, "")})
        assert set(FencingProducer.epochs_sent) == {1}
    else:
        sink.commit([], {ORDERS: (1, "")})
        assert FencingProducer.epochs_sent == [1, 2]


def test_source_counts_revocations(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = SimpleNamespace(poll=lambda _: None, consumer_group_metadata=lambda: "metadata")
    monkeypatch.setattr(kafka, "RawConsumer", lambda _: raw)
    source = kafka.KafkaSource(NOWHERE, subscription_of(App("shop")))
    raw.subscribe = lambda *_, **__: None
    lost: list[list[Partition]] = []
    source.open(lambda _: None, lost.append)
    source.read(1, 0)
    assert source.membership == Membership("metadata", 0)
    source._on_revoke(source.raw, POSITIONS)
    assert (source.membership.revocations, lost) == (0, [[ORDERS]]), "a revocation counts from the next read on"
    source.read(1, 0)
    assert source.membership.revocations == 1


class LeavingSource(MemorySource):
    """A source whose partition the test revokes while a commit hangs."""

    def __init__(self, broker: MemoryBroker, subscription: Subscription) -> None:
        super().__init__(broker, subscription)
        self.must_leave = threading.Event()
        self.has_left = threading.Event()
        self.is_committing = threading.Event()
        self.may_commit = threading.Event()
        self.committed: list[Mapping[Partition, Position]] = []
        self._revoked: Callable[[list[Partition]], None]

    def open(self, assigned: Any, revoked: Callable[[list[Partition]], None]) -> None:
        self._revoked = revoked
        super().open(assigned, revoked)

    def read(self, max_records: int, timeout_s: float) -> list[Any]:
        if self.must_leave.is_set() and not self.has_left.is_set():
            self._revoked([ORDERS])
            self.has_left.set()
        return super().read(max_records, timeout_s) if not self.has_left.is_set() else []

    def commit(self, messages: Sequence[Message], positions: Mapping[Partition, Position]) -> None:
        del messages
        self.committed.append(positions)
        self.is_committing.set()
        self.may_commit.wait(30)


def test_offsets_of_revoked_partitions_are_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit hangs until the partition is revoked: records finished since then belong to the next owner."""
    monkeypatch.setattr(subscription_runner, "DRAIN_S", 0.1)
    app, broker = App("shop"), MemoryBroker(lambda: 0, 1)
    subscription = subscription_of(app)
    source = LeavingSource(broker, subscription)

    async def work() -> None:
        running = SubscriptionRunner(
            subscription,
            app.make_handler_caller(subscription, None),
            source,
            source,
            Clock(),
            app.counters[subscription.name],
        )
        task = asyncio.create_task(running.run())
        broker.append(Message("orders", "a", "first"))
        await asyncio.to_thread(source.is_committing.wait, 30)
        broker.append(Message("orders", "a", "second"))
        await asyncio.to_thread(eventually, lambda: app.counters[subscription.name].processed == 2, 30)
        source.must_leave.set()
        await asyncio.to_thread(source.has_left.wait, 30)
        source.may_commit.set()
        await asyncio.sleep(0.1)
        running.stop()
        await asyncio.wait_for(task, 30)

    asyncio.run(work())
    assert source.committed == [{ORDERS: (1, "")}]


class SharingSource(MemorySource):
    """A source of two partitions; the test revokes the first when it wants to, and can make commits fail."""

    def __init__(self, broker: MemoryBroker, subscription: Subscription) -> None:
        super().__init__(broker, subscription)
        self.must_leave = threading.Event()
        self.fails = False
        self.committed: list[tuple[list[Any], Mapping[Partition, Position]]] = []
        self._revoked: Callable[[list[Partition]], None]

    def open(self, assigned: Any, revoked: Callable[[list[Partition]], None]) -> None:
        self._revoked = revoked
        super().open(assigned, revoked)

    def read(self, max_records: int, timeout_s: float) -> list[Any]:
        if self.must_leave.is_set():
            self.must_leave.clear()
            self._revoked([ORDERS])
        return super().read(max_records, timeout_s)

    def commit(self, messages: Sequence[Message], positions: Mapping[Partition, Position]) -> None:
        if self.fails:
            self.fails = False
            raise TransactionAborted("the broker is away")
        self.committed.append(([message.value for message in messages], positions))


def runner_of(app: App, broker: MemoryBroker) -> tuple[SubscriptionRunner, SharingSource]:
    subscription = app.subscriptions[0]
    source = SharingSource(broker, subscription)
    caller = app.make_handler_caller(subscription, None)
    return SubscriptionRunner(subscription, caller, source, source, Clock(), app.counters[subscription.name]), source


def append_to_both(broker: MemoryBroker) -> None:
    # Without keys, records take turns.
    broker.append(Message("orders", None, "zero"))
    broker.append(Message("orders", None, "one"))


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_no_offset_is_committed_after_a_commit_that_failed_in_a_revocation(guarantee: Any) -> None:
    """The failed commit had taken the messages of all partitions: those that stay must not be committed without."""
    app, broker = App("shop"), MemoryBroker(lambda: 0, 2)

    # The first commit is that of the revocation.
    @app.subscribe("orders", publish="shipments", guarantee=guarantee, commit_interval_s=0.01)
    def ship(value: str) -> str:
        return value

    async def work() -> SharingSource:
        running, source = runner_of(app, broker)
        async with running._commit_lock:
            append_to_both(broker)
            task = asyncio.create_task(running.run())
            await asyncio.to_thread(eventually, lambda: app.counters["ship"].processed == 2, 30)
            source.fails = True
            source.must_leave.set()
            await asyncio.to_thread(eventually, lambda: bool(running._revoking), 30)
        with pytest.raises(TransactionAborted):
            await asyncio.wait_for(task, 30)
        return source

    source = asyncio.run(work())
    assert source.committed == []
    assert broker.commits["shop"] == {}


def test_a_batch_of_which_a_partition_was_revoked_is_processed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its messages belong to the records of both partitions, which two members own by now."""
    monkeypatch.setattr(subscription_runner, "DRAIN_S", 0.1)
    app, broker = App("shop"), MemoryBroker(lambda: 0, 2)
    is_running, may_end = threading.Event(), threading.Event()

    @app.subscribe("orders", publish="totals", guarantee="exactly-once", commit_interval_s=0.01)
    def total(values: list[str]) -> str:
        is_running.set()
        may_end.wait(30)
        return ",".join(values)

    async def work() -> SharingSource:
        append_to_both(broker)
        running, source = runner_of(app, broker)
        task = asyncio.create_task(running.run())
        await asyncio.to_thread(is_running.wait, 30)
        source.must_leave.set()
        await asyncio.to_thread(eventually, lambda: ORDERS not in running._progress, 30)
        may_end.set()
        with pytest.raises(PenstockError, match="revoked while it was processed"):
            await asyncio.wait_for(task, 30)
        return source

    # The commit of the revocation says where the two partitions start.
    for messages, positions in asyncio.run(work()).committed:
        assert not messages
        assert {offset for offset, _ in positions.values()} == {0}


def test_exactly_once_commits_nothing_that_its_metadata_has_no_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that are done behind one that waits would be processed again, and their messages stored twice."""
    monkeypatch.setattr(progress, "METADATA_CHARACTERS_MAX", 60)
    monkeypatch.setattr(progress, "METADATA_CHARACTERS_FULL", 50)
    monkeypatch.setattr(progress, "RANGES_ALWAYS_FIT", 5)
    app, broker = App("shop"), MemoryBroker(lambda: 0, 1)
    may_succeed = threading.Event()
    count = 60

    @app.subscribe(
        "orders", publish="shipments", guarantee="exactly-once", retries=10**6, delay_s=0.01, backoff="fixed"
    )
    def ship(value: str) -> str:
        if value == "stuck" and not may_succeed.is_set():
            raise ValueError(value)
        return value

    async def work() -> list[tuple[list[Any], Mapping[Partition, Position]]]:
        for number in range(count):
            is_stuck = number % 2 == 0
            broker.append(Message("orders", "a" if is_stuck else f"key-{number}", "stuck" if is_stuck else f"{number}"))
        running, source = runner_of(app, broker)
        task = asyncio.create_task(running.run())
        await asyncio.to_thread(eventually, lambda: app.counters["ship"].processed == count // 2, 30)
        # Another turn of the committer.
        await asyncio.to_thread(eventually, lambda: app.counters["ship"].failed > 20, 30)
        early = list(source.committed)
        may_succeed.set()
        await asyncio.to_thread(eventually, lambda: sum(len(each) for each, _ in source.committed) == count, 30)
        running.stop()
        await asyncio.wait_for(task, 30)
        assert source.committed[-1][1] == {ORDERS: (count, "")}
        return early

    for messages, positions in asyncio.run(work()):
        finished = decode_ranges(*positions[ORDERS])
        assert all(any(first <= int(each) <= last for first, last in finished) for each in messages)
