"""Producers that share transactional ids, requests that come late or twice, markers that take their time, coordinators
that fail at any point: whatever happens, some things must hold. A failure names the seed that shows it again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from penstock.core.contract import Effects, ProducerIdentity
from penstock.core.transaction.contract import Markers, TransactionSettings
from penstock.core.transaction.states import PREVIOUS, TransactionState
from penstock.core.transaction.transaction import EPOCH_LAST, EPOCH_MAX, Transaction
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from support.worlds.transaction_world import TransactionWorld

SEEDS = 150
STEPS = 400
IDS = ("a", "b")
PARTITIONS = [TopicPartition(topic, index) for topic in ("t", "u") for index in (0, 1)]
NONE = ErrorCode.NONE


@dataclass
class Producer:
    """An instance of an application: what it believes, and which protocol it speaks."""

    transactional_id: str
    version: int
    identity: ProducerIdentity | None = None


@dataclass
class Ledger:
    """All that was ever recorded or answered for one transactional id."""

    states: list[Transaction] = field(default_factory=list)
    issued: list[ProducerIdentity] = field(default_factory=list)
    # Identities up to this place in `issued` belong to instances that others have replaced.
    replaced: int = 0
    outcomes: dict[ProducerIdentity, bool] = field(default_factory=dict)
    # The markers that were sent last, and where they have arrived; others are of former decisions.
    due: Markers | None = None
    marked: set[TopicPartition] = field(default_factory=set)


class Chaos:
    """Everything that may happen, in an order that the seed decides."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        settings = TransactionSettings(transactional_id_expiration_ms=3_600_000)
        self.world = TransactionWorld(settings, cluster_version=self.random.choice((0, 1, 2, 2)))
        self.world.observer = self.observe
        self.ledgers = {name: Ledger() for name in IDS}
        self.producers = [Producer(name, self.random.choice((4, 5))) for name in IDS for _ in range(2)]
        # Requests on their way; some arrive twice.
        self.in_flight: list[Callable[[], None]] = []
        self.started: set[str] = set()

    def run(self) -> None:
        events = (self.ask, self.deliver, self.mark)
        for _ in range(STEPS):
            self.random.choice(events)()
            if self.random.random() < 0.05:
                self.disturb()
            self.check()
        # In the end everything that was decided is carried out.
        self.world.fail_over()
        for markers in self.world.markers:
            self.write(markers, [*markers.partitions])
        self.check()
        assert not any(one.state.is_prepared for one in self.world.shard._transactions.values())

    def ask(self) -> None:
        producer = self.random.choice(self.producers)
        identity = producer.identity
        if identity is None or self.random.random() < 0.02:
            self.in_flight.append(lambda: self.init(producer, None))
            return
        kind = self.random.random()
        if kind < 0.04:
            self.in_flight.append(lambda: self.init(producer, identity))
        elif kind < 0.55:
            partitions = self.random.sample(PARTITIONS, self.random.randint(1, 3))
            self.in_flight.append(lambda: self.add(producer, identity, partitions))
        else:
            commit = self.random.random() < 0.6
            self.in_flight.append(lambda: self.end(producer, identity, commit))

    def deliver(self) -> None:
        if self.in_flight:
            # Mostly in their order, as on a connection; some stay on their way for long, and some come twice.
            index = self.random.randrange(len(self.in_flight)) if self.random.random() < 0.2 else 0
            request = self.in_flight[index] if self.random.random() < 0.1 else self.in_flight.pop(index)
            request()

    def mark(self) -> None:
        if not self.world.markers:
            return
        markers = self.random.choice(self.world.markers)
        self.write(markers, self.random.sample(markers.partitions, self.random.randint(1, len(markers.partitions))))

    def write(self, markers: Markers, some: list[TopicPartition]) -> None:
        ledger = self.ledgers[markers.transactional_id]
        if markers is ledger.due:
            ledger.marked.update(some)
        self.world.write_markers(markers, some)

    def disturb(self) -> None:
        kind = self.random.random()
        if kind < 0.4:
            self.world.fail_over()
        elif kind < 0.85:
            self.world.advance(self.random.choice((10, 1_000, 30_000, 61_000)))
        elif kind < 0.87:
            self.world.advance(3_600_000)
            self.world.expire()
        else:
            self.hurry()

    def hurry(self) -> None:
        """Let an id come close to its last epoch, as after years."""
        name = self.random.choice(IDS)
        transaction = self.world.shard._transactions.get(name)
        if transaction is None or transaction.state is not TransactionState.EMPTY:
            return
        if transaction.producer_epoch < EPOCH_LAST - 3:
            aged = replace(transaction, producer_epoch=EPOCH_LAST - self.random.randint(0, 2))
            self.world.force(aged)
            ledger = self.ledgers[name]
            ledger.states.append(aged)
            ledger.issued.append(aged.identity)
            for producer in self.producers:
                if producer.identity == transaction.identity:
                    producer.identity = aged.identity

    # Requests and what their answers mean.

    def init(self, producer: Producer, expected: ProducerIdentity | None) -> None:
        response = self.world.init(producer.transactional_id, expected, version=producer.version)
        ledger = self.ledgers[producer.transactional_id]
        if response.error_code != NONE:
            assert response.producer_id == -1
            return
        if expected is not None and producer.transactional_id in self.started:
            self.is_not_replaced(ledger, expected)
        identity = ProducerIdentity(response.producer_id, response.producer_epoch)
        self.issue(ledger, identity)
        if expected is None:
            ledger.replaced = ledger.issued.index(identity)
        self.started.add(producer.transactional_id)
        producer.identity = identity

    def add(self, producer: Producer, identity: ProducerIdentity, partitions: list[TopicPartition]) -> None:
        client_version = 2 if producer.version >= 5 else 0
        error = self.world.add(producer.transactional_id, identity, partitions, client_version)
        if error is NONE:
            self.is_not_replaced(self.ledgers[producer.transactional_id], identity)
            assert self.world.transaction(producer.transactional_id).identity == identity

    def end(self, producer: Producer, identity: ProducerIdentity, commit: bool) -> None:
        response = self.world.end(producer.transactional_id, identity, commit, producer.version)
        if response.error_code != NONE:
            return
        ledger = self.ledgers[producer.transactional_id]
        self.is_not_replaced(ledger, identity)
        known = ledger.outcomes.setdefault(identity, commit) if producer.version >= 5 else commit
        assert known == commit, "a transaction ended in two ways"
        if producer.version >= 5:
            new = ProducerIdentity(response.producer_id, response.producer_epoch)
            self.issue(ledger, new)
            if producer.identity == identity:
                producer.identity = new
        last = ledger.states[-1].state
        assert last in (
            (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
            if commit
            else (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT)
        )

    def issue(self, ledger: Ledger, identity: ProducerIdentity) -> None:
        assert 0 <= identity.producer_epoch < EPOCH_MAX, "no producer has the last epoch"
        if identity not in ledger.issued:
            ledger.issued.append(identity)

    def is_not_replaced(self, ledger: Ledger, identity: ProducerIdentity) -> None:
        if identity in ledger.issued:
            assert ledger.issued.index(identity) >= ledger.replaced, f"{identity} was fenced and got its way"

    def observe(self, effects: Effects) -> None:
        for record in effects.records:
            name = record.key.transactional_id
            ledger = self.ledgers[name]
            if record.value is None:
                self.ledgers[name] = Ledger()
                self.started.discard(name)
                for producer in self.producers:
                    if producer.transactional_id == name:
                        producer.identity = None
                self.in_flight.clear()
                continue
            after = Transaction.from_record(name, record.value)
            if ledger.states:
                self.follows(ledger, ledger.states[-1], after)
            ledger.states.append(after)
        for _, response in effects.replies:
            if isinstance(response, Markers):
                self.is_decided(response)

    def follows(self, ledger: Ledger, before: Transaction, after: Transaction) -> None:
        assert before.state in PREVIOUS[after.state], "a decided transaction was reversed"
        if before.producer_id == after.producer_id:
            assert after.producer_epoch >= before.producer_epoch, "an epoch went back"
        else:
            assert after.producer_id not in {one.producer_id for one in ledger.states}, "a producer id came back"
        if before.state.is_prepared:
            assert ledger.marked >= set(before.partitions), "completed before every partition knew"
            ledger.marked.clear()

    def is_decided(self, markers: Markers) -> None:
        """Markers come only for what the log contains, and always the same way."""
        ledger = self.ledgers[markers.transactional_id]
        ledger.due = markers
        ledger.marked.clear()
        last = ledger.states[-1]
        assert last.state.is_prepared
        assert (last.is_commit, last.identity) == (markers.committed, (markers.producer_id, markers.producer_epoch))
        assert tuple(last.partitions) == markers.partitions

    def check(self) -> None:
        replayed = self.world.replayed()
        assert replayed._transactions == self.world.shard._transactions, "the log contains something else"
        for name, ledger in self.ledgers.items():
            if ledger.states:
                assert self.world.shard._transactions[name] == ledger.states[-1]
        ongoing = [one for one in self.world.shard._transactions.values() if one.state is TransactionState.ONGOING]
        assert {key[1] for key in self.world.timers} == {one.transactional_id for one in ongoing}
        prepared = [one for one in self.world.shard._transactions.values() if one.state.is_prepared]
        assert set(self.world.shard._due) == {one.transactional_id for one in prepared}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_must_hold_holds(seed: int) -> None:
    Chaos(seed).run()


def test_the_chaos_reaches_every_state_and_the_last_epoch() -> None:
    seen: set[TransactionState] = set()
    producer_ids: set[int] = set()
    for seed in range(20):
        chaos = Chaos(seed)
        chaos.run()
        for ledger in chaos.ledgers.values():
            seen |= {one.state for one in ledger.states}
            producer_ids |= {one.producer_id for one in ledger.states if one.producer_epoch >= EPOCH_LAST}
    assert seen == set(TransactionState) - {TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE}
    assert producer_ids
