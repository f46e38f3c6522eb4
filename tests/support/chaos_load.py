"""Clients that write and read all the while, and note in a history what they did and saw.

All of them are confluent-kafka: idempotent producers with acks=all that name each record's partition, consumers that
read assigned partitions from the beginning, and a group with one member that commits as it goes.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from support.chaos_security import client_settings
from support.history import Anomaly, History, Kind, Operation, Status
from support.history_checks import check

CLIENT: Mapping[str, Any] = {
    "log_level": 0,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 1000,
    "socket.connection.setup.timeout.ms": 3000,
    **client_settings(),
}
PACE_S = 0.004
DRAIN_S = 60.0
ABANDON_S = 5.0
COMMIT_EVERY_S = 0.2
OUTSTANDING_MAX = 5000


class Worker(threading.Thread):
    """A client in a thread; `stop` ends it and raises what went wrong in it."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._stopped = threading.Event()
        self.is_abandoned = False
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:  # noqa: BLE001 - raised where this is stopped
            self._error = error

    def work(self) -> None:
        raise NotImplementedError

    def stop(self, timeout_s: float = 2 * DRAIN_S) -> None:
        self._stopped.set()
        self.join(timeout_s)
        assert not self.is_alive(), f"{self.name} did not end"
        if self._error is not None:
            raise self._error

    def abandon(self) -> None:
        """Let it end as it likes: the test is over."""
        self.is_abandoned = True
        self._stopped.set()


class Writer(Worker):
    """Writes records with values of its own to every partition in turn."""

    def __init__(
        self, servers: str, topic: str, partitions: Sequence[int], history: History, name: str, **settings: Any
    ) -> None:
        super().__init__(name)
        self._topic = topic
        self._partitions = partitions
        self._history = history
        self.outstanding = 0
        # By partition, in the order in which they were acknowledged.
        self.acknowledged: dict[int, list[Operation]] = {partition: [] for partition in partitions}
        self._producer = Producer(
            {
                **CLIENT,
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                **settings,
            }
        )

    def work(self) -> None:
        number = 0
        while not self._stopped.is_set():
            if self.outstanding < OUTSTANDING_MAX:
                self._send(self._partitions[number % len(self._partitions)], f"{self.name}-{number}")
                number += 1
            self._producer.poll(0)
            time.sleep(PACE_S)
        if self.is_abandoned:
            self._producer.purge()
        assert self._producer.flush(DRAIN_S) == 0, f"{self.name}: records without an answer"

    def ballast(self, value: str, count: int) -> None:
        """Make the partitions heavier, with records that end in this value."""
        for number in range(count):
            self._send(self._partitions[number % len(self._partitions)], f"ballast-{number}-{value}", "ballast")

    def _send(self, partition: int, value: str, process: str | None = None) -> None:
        operation = self._history.send(process or self.name, f"{self._topic}-{partition}", value)
        self.outstanding += 1

        def delivered(error: KafkaError | None, message: Message) -> None:
            self.outstanding -= 1
            if error is None:
                self._history.ok(operation, message.offset())
                self.acknowledged[partition].append(operation)
            else:
                # A record that timed out may be in a log, or on its way to one.
                self._history.unknown(operation, error.str())

        self._producer.produce(self._topic, value, partition=partition, on_delivery=delivered)


class Reader(Worker):
    """Reads assigned partitions from their beginning."""

    def __init__(self, servers: str, topic: str, partitions: Sequence[int], history: History, name: str) -> None:
        super().__init__(name)
        self._topic = topic
        self._partitions = partitions
        self._history = history
        self.next_offsets: dict[int, int] = dict.fromkeys(partitions, 0)
        self.until: dict[int, int] | None = None
        self._consumer = Consumer(
            {
                **CLIENT,
                "bootstrap.servers": servers,
                "group.id": name,
                "enable.auto.commit": False,
                # Nothing is deleted in these tests: an offset out of range is an anomaly, not a reason to start anew.
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 100,
            }
        )

    def work(self) -> None:
        self._consumer.assign([TopicPartition(self._topic, one, OFFSET_BEGINNING) for one in self._partitions])
        for one in self._partitions:
            self._history.moved(self.name, f"{self._topic}-{one}")
        try:
            while not self._stopped.is_set() or not self._is_done():
                self._note(self._consumer.consume(500, 0.1))
        finally:
            self._consumer.close()

    def drain(self, ends: Mapping[int, int]) -> None:
        """Read on until these offsets, for a while."""
        self._deadline = time.monotonic() + DRAIN_S
        self.until = dict(ends)
        self.stop()

    def _is_done(self) -> bool:
        if self.until is None or time.monotonic() > self._deadline:
            return True
        return all(self.next_offsets[one] >= end for one, end in self.until.items())

    def _note(self, messages: list[Message]) -> None:
        records: dict[int, list[tuple[int, str]]] = {}
        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                    self._history.notice("offset-out-of-range", f"{self.name}: {error.str()}")
                continue
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None
            assert offset is not None
            assert isinstance(value, bytes)
            records.setdefault(partition, []).append((offset, value.decode()))
        for partition, found in records.items():
            self._history.polled(self.name, f"{self._topic}-{partition}", found)
            self.next_offsets[partition] = found[-1][0] + 1


class Committer(Worker):
    """Commits rising offsets of a group without members, and asks for them: a value that is written and read."""

    def __init__(self, servers: str, topic: str, history: History, name: str) -> None:
        super().__init__(name)
        self._topic = topic
        self._history = history
        self.commits = 0
        self._consumer = Consumer(
            {**CLIENT, "bootstrap.servers": servers, "group.id": name, "enable.auto.commit": False}
        )

    def work(self) -> None:
        number = 0
        try:
            while not self._stopped.wait(COMMIT_EVERY_S):
                number += 1
                self._commit(number)
                self._ask()
        finally:
            self._consumer.close()

    def _commit(self, number: int) -> None:
        operation = self._history.commit(self.name, self.name, f"{self._topic}-0", number)
        # The client sends again by itself, so a late copy of an earlier try may still arrive.
        operation.attempts = 2
        try:
            self._consumer.commit(offsets=[TopicPartition(self._topic, 0, number)], asynchronous=False)
        except KafkaException as error:
            self._history.unknown(operation, str(error))
        else:
            self._history.ok(operation)
            self.commits += 1

    def _ask(self) -> None:
        operation = self._history.fetch_committed(self.name, self.name, f"{self._topic}-0")
        try:
            found = self._consumer.committed([TopicPartition(self._topic, 0)], timeout=10)[0]
        except KafkaException as error:
            self._history.unknown(operation, str(error))
            return
        if found.error is not None:
            self._history.unknown(operation, str(found.error))
        else:
            self._history.ok(operation, found.offset if found.offset >= 0 else None)


class Load:
    """A writer, a reader and a committer on one topic. `finish` reads everything back and checks the history."""

    def __init__(self, servers: str, topic: str, partitions: int, *, writer: Mapping[str, Any] | None = None) -> None:
        self.history = History(time.monotonic)
        self.topic = topic
        self._servers = servers
        self._partitions = range(partitions)
        self.writer = Writer(servers, topic, self._partitions, self.history, "writer", **(writer or {}))
        self.reader = Reader(servers, topic, self._partitions, self.history, "reader")
        self.committer = Committer(servers, topic, self.history, "committer")

    def __enter__(self) -> Self:
        for worker in (self.writer, self.reader, self.committer):
            worker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for worker in (self.writer, self.reader, self.committer):
            worker.abandon()
        for worker in (self.writer, self.reader, self.committer):
            worker.join(ABANDON_S)

    def finish(self) -> list[Anomaly]:
        """Stop writing, read everything to the end, and name every anomaly."""
        self.writer.stop()
        self.committer.stop()
        found = read_partitions(self._servers, self.topic, self._partitions)
        for partition, records in found.items():
            self.history.final(f"{self.topic}-{partition}", records)
        self.reader.drain({partition: records[-1][0] + 1 for partition, records in found.items() if records})
        return check(self.history)

    def acknowledged(self) -> int:
        """How many records were acknowledged so far."""
        return sum(len(found) for found in self.writer.acknowledged.values())

    def unknown(self) -> list[Operation]:
        """Sends of unknown outcome."""
        return [one for one in self.history.operations if one.kind is Kind.SEND and one.status is Status.UNKNOWN]

    def resumed_after(self, partition: int, moment: float) -> float | None:
        """How long after a moment the first record that was sent after it was acknowledged."""
        for one in self.writer.acknowledged[partition]:
            if one.invoked >= moment and one.completed is not None:
                return one.completed - moment
        return None

    def wait_resumed(self, partitions: Sequence[int], moment: float, seconds: float) -> float:
        """Wait until all these partitions take records again; how long after the moment the last one did."""
        deadline = time.monotonic() + seconds
        while True:
            found = [self.resumed_after(one, moment) for one in partitions]
            done = [one for one in found if one is not None]
            if len(done) == len(partitions):
                return max(done)
            assert time.monotonic() < deadline, f"no acknowledgement within {seconds:g} s on partitions {partitions}"
            time.sleep(0.05)

    def longest_gap(self, since: float = 0.0) -> float:
        """The longest time in which a partition took nothing."""
        longest = 0.0
        for found in self.writer.acknowledged.values():
            times = [one.completed for one in found if one.completed is not None and one.completed >= since]
            longest = max([longest, *(later - earlier for earlier, later in itertools.pairwise(times))])
        return longest

    def wait_acknowledged(self, count: int, seconds: float = 30.0) -> None:
        """Wait until so many records more are acknowledged."""
        before = self.acknowledged()
        deadline = time.monotonic() + seconds
        while self.acknowledged() < before + count:
            assert time.monotonic() < deadline, f"not {count} records in {seconds:g} s"
            time.sleep(0.05)


def read_all(servers: str, topic: str, partition: int) -> list[tuple[int, str]]:
    """All records of a partition, offset and value, up to where it ends now."""
    return read_partitions(servers, topic, [partition])[partition]


def read_partitions(servers: str, topic: str, partitions: Sequence[int]) -> dict[int, list[tuple[int, str]]]:
    """All records of partitions, offset and value, up to where they end now."""
    consumer = Consumer(
        {
            **CLIENT,
            "bootstrap.servers": servers,
            "group.id": "read-all",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 100,
        }
    )
    found: dict[int, list[tuple[int, str]]] = {partition: [] for partition in partitions}
    unfinished = set(partitions)
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        deadline = time.monotonic() + DRAIN_S
        while unfinished:
            for message in consumer.consume(1000, 0.1):
                error, partition = message.error(), message.partition()
                if error is None:
                    offset, value = message.offset(), message.value()
                    assert partition is not None
                    assert offset is not None
                    assert isinstance(value, bytes)
                    found[partition].append((offset, value.decode()))
                elif error.code() == KafkaError._PARTITION_EOF and partition is not None:
                    unfinished.discard(partition)
            assert time.monotonic() < deadline, f"{topic} {unfinished} could not be read to the end"
    finally:
        consumer.close()
    return found
