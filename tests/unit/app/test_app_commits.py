"""Transactions of an application whose group changes while they are under way."""

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
from penstock.app.lines import kafka, line, outbox
from penstock.app.lines.kafka import KafkaSink, Membership
from penstock.app.lines.lane import Partition
from penstock.app.lines.line import Line
from penstock.app.lines.outbox import COMMIT_TRIES, Outbox
from penstock.app.lines.transport import Clock, Position
from penstock.app.subscription import Subscription
from penstock.client.application.connection import Connection
from penstock.client.application.errors import TransactionAborted
from penstock.testing.memory import MemoryBroker, MemorySource
from support.processes import eventually

ORDERS: Partition = ("orders", 0)
POSITIONS = [TopicPartition(*ORDERS, 1)]
NOWHERE = Connection("127.0.0.1:1")


class FencingProducer:
    """Stands for a producer whose broker knows the members of one epoch only."""

    epoch = 2
    asked: ClassVar[list[int]] = []

    def __init__(self, *_: Any, **__: Any) -> None: ...

    @contextmanager
    def transaction(self) -> Iterator[None]:
        yield

    def send(self, *_: Any, **__: Any) -> None: ...

    def send_offsets(self, _: Any, group_metadata: int) -> None:
        self.asked.append(group_metadata)
        if group_metadata != self.epoch:
            raise TransactionAborted("the transaction is aborted", code="ILLEGAL_GENERATION")

    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def _producer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "Producer", FencingProducer)
    monkeypatch.setattr(outbox, "COMMIT_PAUSE_S", 0.0)
    monkeypatch.setattr(FencingProducer, "asked", [])


def subscription_of(app: App) -> Subscription:
    @app.subscribe("orders", publish="shipments", guarantee="exactly-once", commit_interval_s=0.01)
    def ship(value: str) -> str:
        return value

    return app.subscriptions[0]


def test_each_try_uses_the_epoch_that_the_member_has_then() -> None:
    epochs = iter([1, 1, 2])
    Outbox(NOWHERE, "ship-1", frozenset()).commit([], POSITIONS, lambda: next(epochs))
    assert FencingProducer.asked == [1, 1, 2]


def test_a_member_that_stays_unknown_is_told_so() -> None:
    with pytest.raises(TransactionAborted):
        Outbox(NOWHERE, "ship-1", frozenset()).commit([], POSITIONS, lambda: 1)
    assert FencingProducer.asked == [1] * COMMIT_TRIES


@pytest.mark.parametrize("losses", [0, 1])
def test_positions_from_before_a_loss_are_not_stored_in_a_later_epoch(losses: int) -> None:
    """Somebody else may own the partitions since then."""

    class Source:
        def __init__(self) -> None:
            self.memberships = [Membership(1, 0), Membership(1, 0)]

        @property
        def membership(self) -> Membership:
            return self.memberships.pop(0) if self.memberships else Membership(2, losses)

    source: Any = Source()
    sink = KafkaSink(NOWHERE, source, subscription_of(App("shop")), "ship-1")
    if losses:
        with pytest.raises(TransactionAborted):
            sink.commit([], {ORDERS: (1, "")})
        assert set(FencingProducer.asked) == {1}
    else:
        sink.commit([], {ORDERS: (1, "")})
        assert FencingProducer.asked == [1, 2]


def test_a_source_counts_what_it_loses(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = SimpleNamespace(poll=lambda _: None, consumer_group_metadata=lambda: "metadata")
    monkeypatch.setattr(kafka, "RawConsumer", lambda _: raw)
    source = kafka.KafkaSource(NOWHERE, subscription_of(App("shop")))
    raw.subscribe = lambda *_, **__: None
    lost: list[list[Partition]] = []
    source.open(lambda _: None, lost.append)
    source.read(1, 0)
    assert source.membership == Membership("metadata", 0)
    source._on_revoke(source.raw, POSITIONS)
    assert (source.membership.losses, lost) == (0, [[ORDERS]]), "it is known to the next read's callers"
    source.read(1, 0)
    assert source.membership.losses == 1


class LeavingSource(MemorySource):
    """Its partition is taken away when told so, while a commit hangs."""

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


def test_nothing_is_committed_of_partitions_that_were_taken_away_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit hangs, so that the group takes the partition away: what was done since is others' to do."""
    monkeypatch.setattr(line, "DRAIN_S", 0.1)
    app, broker = App("shop"), MemoryBroker(lambda: 0, 1)
    subscription = subscription_of(app)
    source = LeavingSource(broker, subscription)

    async def work() -> None:
        running = Line(
            subscription, app.make_runner(subscription, None), source, source, Clock(), app.counters[subscription.name]
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
