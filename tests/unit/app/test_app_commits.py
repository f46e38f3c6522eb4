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
from penstock.app.processing import kafka, outbox, subscription_runner
from penstock.app.processing.kafka import KafkaSink, Membership
from penstock.app.processing.key_queue import Partition
from penstock.app.processing.outbox import COMMIT_TRIES, Outbox
from penstock.app.processing.subscription_runner import SubscriptionRunner
from penstock.app.processing.transport import Clock, Position
from penstock.app.subscription import Subscription
from penstock.client.application.connection import Connection
from penstock.client.application.errors import TransactionAborted
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
