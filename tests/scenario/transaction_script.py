"""Plays a script of transactions and writes down what happens.

A script is a list of events, one a line, each followed by its indented effects. Clients are called by names of one
letter or word. A client whose name starts with `old` speaks version 1 of transactions, the others version 2. Time
stands still except for `wait`, and no partition gets a marker except by `mark`. Producers are shown as id/epoch.

    set NAME=VALUE ...           settings of the coordinator, and cluster_version, before the first event
    init CLIENT [OPTION ...]     timeout=; with `again` the client names the id and epoch that it has, with `lost` it
                                 never hears the answer
    add CLIENT T/P ...           partitions become part of the transaction
    verify CLIENT T/P ...        a broker asks whether they are
    commit CLIENT, abort CLIENT  with `lost` the client never hears the answer
    mark [T/P ...]               partitions get the markers that are on their way, all of them unless named
    wait TIME                    such as 60s or 500ms
    expire                       transactional ids that nobody uses are forgotten
    age EPOCH                    the producer gets near its last epoch
    failover                     another coordinator takes over with nothing but the log
    describe                     what DescribeTransactions shows
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from play import Play, number

from penstock.core.contract import Effects, ProducerIdentity
from penstock.core.transaction.contract import Markers, TransactionSettings
from penstock.core.transaction.transaction import Transaction, by_topic
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from support.worlds.transaction_world import TransactionWorld

ID = "copy"
NOBODY = ProducerIdentity(-1, -1)


@dataclass
class Client:
    """What a client of the script remembers."""

    name: str
    producer: ProducerIdentity = NOBODY

    @property
    def version(self) -> int:
        return 4 if self.name.startswith("old") else 5


class TransactionScript(Play):
    """One coordinator and its clients."""

    def __init__(self) -> None:
        super().__init__()
        self.world = TransactionWorld()
        self.world.observer = self._observe
        self.clients: dict[str, Client] = {}

    def _set(self, arguments: list[str]) -> None:
        values = {name: number(value) for name, value in (word.split("=") for word in arguments)}
        version = values.pop("cluster_version", 2)
        self.world = TransactionWorld(TransactionSettings(**values), version)
        self.world.observer = self._observe

    def _init(self, arguments: list[str]) -> None:
        client = self._client(arguments[0])
        options = dict(word.split("=") for word in arguments[1:] if "=" in word)
        expected = client.producer if "again" in arguments else None
        timeout_ms = number(options.get("timeout", "60s"))
        response = self.world.init(ID, expected, timeout_ms, client.version)
        text = ErrorCode(response.error_code).name
        if response.error_code == ErrorCode.NONE:
            producer = ProducerIdentity(response.producer_id, response.producer_epoch)
            text = f"is {_producer(producer)}"
            if "lost" not in arguments:
                client.producer = producer
        self.lines.append(f"{client.name} init: {text}{_lost(arguments)}")

    def _add(self, arguments: list[str]) -> None:
        client = self._client(arguments[0])
        client_version = 2 if client.version >= 5 else 0
        error = self.world.add(ID, client.producer, _partitions(arguments[1:]), client_version)
        self.lines.append(f"{client.name} add: {error.name}")

    def _verify(self, arguments: list[str]) -> None:
        client = self._client(arguments[0])
        found = self.world.shard.verify_partitions(ID, client.producer, _partitions(arguments[1:]))
        self.lines += [f"{topic}/{index}: {error.name}" for (topic, index), error in found.items()]

    def _commit(self, arguments: list[str]) -> None:
        self._end(arguments, commit=True)

    def _abort(self, arguments: list[str]) -> None:
        self._end(arguments, commit=False)

    def _end(self, arguments: list[str], commit: bool) -> None:
        client = self._client(arguments[0])
        response = self.world.end(ID, client.producer, commit, client.version)
        text = ErrorCode(response.error_code).name
        if response.producer_id >= 0:
            text = f"is {response.producer_id}/{response.producer_epoch} now"
            if "lost" not in arguments:
                client.producer = ProducerIdentity(response.producer_id, response.producer_epoch)
        self.lines.append(f"{client.name} {'commit' if commit else 'abort'}: {text}{_lost(arguments)}")

    def _mark(self, arguments: list[str]) -> None:
        for markers in [*self.world.markers]:
            self.world.write_markers(markers, _partitions(arguments) or None)
        if not arguments:
            self.world.markers.clear()

    def _wait(self, arguments: list[str]) -> None:
        self.world.advance(number(arguments[0]))

    def _expire(self, arguments: list[str]) -> None:  # noqa: ARG002
        self.world.expire()

    def _age(self, arguments: list[str]) -> None:
        before = self.world.transaction(ID)
        self.world.force(replace(before, producer_epoch=int(arguments[0])))
        for client in self.clients.values():
            if client.producer == before.identity:
                client.producer = self.world.transaction(ID).identity

    def _failover(self, arguments: list[str]) -> None:  # noqa: ARG002
        self.world.fail_over()

    def _describe(self, arguments: list[str]) -> None:  # noqa: ARG002
        row = self.world.shard.describe(ID)
        if row.error_code:
            self.lines.append(ErrorCode(row.error_code).name)
            return
        partitions = [TopicPartition(topic.topic, index) for topic in row.topics for index in topic.partitions]
        where = f" {_named(partitions)}" if partitions else ""
        self.lines.append(f"{row.transaction_state} {row.producer_id}/{row.producer_epoch}{where}")

    def _observe(self, effects: Effects) -> None:
        for record in effects.records:
            self._note_record(record.key.transactional_id, record.value)
        for _, response in effects.replies:
            if isinstance(response, Markers):
                self._note_markers(response)

    def _note_record(self, transactional_id: str, value: Any) -> None:
        if value is None:
            self.lines.append(f"record: {transactional_id} is forgotten")
            return
        after = Transaction.from_record(transactional_id, value)
        text = f"record: {after.state.title} {_producer(after.identity)}"
        if after.next_producer_id >= 0:
            text += f", then {after.next_producer_id}/0"
        self.lines.append(text + (f" {_named(after.partitions)}" if after.partitions else ""))

    def _note_markers(self, markers: Markers) -> None:
        verb = "commit" if markers.committed else "abort"
        epoch = f" (coordinator epoch {markers.coordinator_epoch})" if markers.coordinator_epoch else ""
        where = _named(markers.partitions)
        self.lines.append(f"markers: {verb} {markers.producer_id}/{markers.producer_epoch} on {where}{epoch}")

    def _client(self, name: str) -> Client:
        return self.clients.setdefault(name, Client(name))


def _lost(arguments: list[str]) -> str:
    return ", which it never hears" if "lost" in arguments else ""


def _producer(producer: ProducerIdentity) -> str:
    return f"{producer.producer_id}/{producer.producer_epoch}"


def _named(partitions: Iterable[TopicPartition]) -> str:
    return " ".join(f"{topic}/{','.join(map(str, indexes))}" for topic, indexes in by_topic(partitions).items())


def _partitions(words: list[str]) -> list[TopicPartition]:
    named = [word.split("/") for word in words]
    return [TopicPartition(topic, int(index)) for topic, indexes in named for index in indexes.split(",")]
