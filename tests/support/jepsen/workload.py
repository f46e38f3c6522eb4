"""The load: processes that send, poll and do both in transactions, with confluent-kafka.

Senders are idempotent producers that wait for each answer. Pollers read assigned partitions, or are members of one
group that commits. Workers read, process and write in transactions. Every consumer reads committed records only. When
the outcome of an operation is unknown, its process is over: fresh clients go on as another process. Now and then one
crashes without a reason. At the end a client reads every log from its beginning.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from .recorder import Recorder

CLIENT: Mapping[str, Any] = {
    "log_level": 0,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 1000,
    "socket.connection.setup.timeout.ms": 3000,
}
PRODUCER: Mapping[str, Any] = {**CLIENT, "enable.idempotence": True, "acks": "all", "linger.ms": 1}
CONSUMER: Mapping[str, Any] = {
    **CLIENT,
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    # Nothing is deleted: a process that is set back shows as one that polls what it had polled before.
    "auto.offset.reset": "earliest",
    "fetch.wait.max.ms": 100,
    "session.timeout.ms": 6000,
}
# Long enough to outlast most faults, and short enough to give up in some.
SEND_TIMEOUTS_MS = (30_000, 2_500)
TRANSACTION_TIMEOUT_MS = 30_000
CALL_TIMEOUT_S = 15.0
PACE_S = 0.01
POLL_S = 0.1
POLL_RECORDS_MAX = 200
FINAL_S = 60.0
# Every call of a client has a time limit, and no operation has more than three of them.
STOP_S = 4 * CALL_TIMEOUT_S
CRASH_CHANCE = 0.002
ASSIGN_CHANCE = 0.02
ABORT_CHANCE = 0.05

Pairs = dict[int, list[list[int]]]


class Workload:
    """Processes on some topics. The number of a partition over all topics is its key."""

    def __init__(
        self,
        servers: str,
        topics: Sequence[str],
        partitions: int,
        recorder: Recorder,
        *,
        seed: int = 0,
        senders: int = 2,
        pollers: int = 1,
        members: int = 2,
        workers: int = 2,
        producer: Mapping[str, Any] | None = None,
    ) -> None:
        self.servers = servers
        self.topics = list(topics)
        self.partitions = partitions
        self.keys = range(len(topics) * partitions)
        self.recorder = recorder
        self.producer = dict(producer or {})
        self.values = itertools.count(1)
        self.processes = itertools.count()
        # By key the highest offset that anybody knows of.
        self.known: dict[int, int] = {}
        self._known_lock = threading.Lock()
        random = Random(seed)
        threads: list[Process] = []
        threads += [Sender(self, random, SEND_TIMEOUTS_MS[number % 2]) for number in range(senders)]
        threads += [Poller(self, random) for _ in range(pollers)]
        threads += [Member(self, random) for _ in range(members)]
        threads += [Worker(self, random, number) for number in range(workers)]
        self._threads = threads
        # Workers whose client never returned from a call.
        self.hung = 0

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let every process end its operation, and raise what went wrong in one.

        librdkafka's main thread was seen to hang after a transaction coordinator was killed: then a call of a worker
        takes longer than its time limit, and the client no longer sends anything. Such an operation has no outcome.
        """
        for thread in self._threads:
            thread.stopped.set()
        deadline = time.monotonic() + STOP_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                assert isinstance(thread, Worker), f"{thread.name} did not end: {stack(thread)}"
                self.hung += 1
                sys.stderr.write(f"a call of librdkafka exceeds its time limit: {stack(thread)}\n")
            if thread.error is not None:
                raise thread.error

    def abandon(self) -> None:
        """Let them end as they like: the test is over."""
        for thread in self._threads:
            thread.stopped.set()
        for thread in self._threads:
            thread.join(STOP_S)

    def read_everything(self) -> None:
        """Poll every key from its beginning until all that is known of has been seen, or the time is up."""
        FinalReader(self, Random(0)).read()

    def partition(self, key: int, offset: int | None = None) -> TopicPartition:
        topic, number = divmod(key, self.partitions)
        return TopicPartition(self.topics[topic], number, *([] if offset is None else [offset]))

    def key(self, partition: TopicPartition | Message) -> int:
        topic, number = partition.topic, partition.partition
        if isinstance(partition, Message):
            topic, number = partition.topic(), partition.partition()
        return self.topics.index(topic) * self.partitions + number

    def note(self, key: int, offset: int) -> None:
        with self._known_lock:
            self.known[key] = max(self.known.get(key, -1), offset)

    def counts(self) -> dict[str, int]:
        """How many operations ended how."""
        ended = (one for one in self.recorder.operations if one.type != "invoke" and isinstance(one.process, int))
        return dict(sorted(Counter(f"{one.f} {one.type}" for one in ended).items()))


def close_consumer(consumer: Consumer) -> None:
    # What a member that leaves wants to tell the group may fail.
    with contextlib.suppress(KafkaException):
        consumer.close()


def stack(thread: threading.Thread) -> str:
    """Where a thread is."""
    frame = sys._current_frames().get(thread.ident or 0)
    return "".join(traceback.format_stack(frame)) if frame is not None else "nowhere"


class Process(threading.Thread):
    """A thread that plays one process after the other."""

    def __init__(self, workload: Workload, random: Random) -> None:
        super().__init__(name=type(self).__name__, daemon=True)
        self.workload = workload
        self.random = Random(random.random())
        self.stopped = threading.Event()
        self.error: BaseException | None = None
        self.process = next(workload.processes)

    def run(self) -> None:
        try:
            self.open()
            while not self.stopped.is_set():
                if self.random.random() < CRASH_CHANCE:
                    self.workload.recorder.invoke(self.process, "crash", None)
                    self.end("info", "crash", None)
                else:
                    self.step()
        except BaseException as error:  # noqa: BLE001 - raised by Workload.stop
            self.error = error
        finally:
            self.close()

    def open(self) -> None:
        """Make new clients."""
        raise NotImplementedError

    def step(self) -> None:
        """Do one thing."""
        raise NotImplementedError

    def close(self) -> None:
        """Give the clients up."""

    def end(self, outcome: str, f: str, value: Any, rebalanced: Iterable[int] = (), error: object = None) -> None:
        """An operation is over; so is the process if the outcome is unknown."""
        reason = None if error is None else str(error)
        self.workload.recorder.complete(self.process, outcome, f, value, rebalanced, reason)
        if outcome == "info":
            self.renew()

    def renew(self) -> None:
        """Go on as another process."""
        self.close()
        self.process = next(self.workload.processes)
        if not self.stopped.is_set():
            self.open()

    def choose_key(self) -> int:
        return self.random.choice(self.workload.keys)


class Sender(Process):
    """Sends one record at a time, or a few at once."""

    def __init__(self, workload: Workload, random: Random, timeout_ms: int) -> None:
        super().__init__(workload, random)
        self._timeout_ms = timeout_ms
        self._producer: Producer | None = None

    def open(self) -> None:
        settings = {"bootstrap.servers": self.workload.servers, "message.timeout.ms": self._timeout_ms}
        self._producer = Producer({**PRODUCER, **settings, **self.workload.producer})

    def close(self) -> None:
        if self._producer is not None:
            self._producer.purge()
            self._producer = None

    def step(self) -> None:
        count = self.random.choice((1, 1, 1, 4))
        micros = [["send", self.choose_key(), next(self.workload.values)] for _ in range(count)]
        self.workload.recorder.invoke(self.process, "send", micros)
        assert self._producer is not None
        sends = Sends(self.workload, self._producer, micros)
        sends.wait(self._timeout_ms / 1000 + CALL_TIMEOUT_S)
        self.end("info" if sends.errors else "ok", "send", sends.result(), error=sends.reason())
        self.stopped.wait(PACE_S)


class Sends:
    """Records on their way, and where they arrived."""

    def __init__(self, workload: Workload, producer: Producer, micros: Sequence[Sequence[Any]]) -> None:
        self._workload = workload
        self._producer = producer
        self._micros = micros
        self._offsets: dict[int, int] = {}
        self.errors: list[KafkaError | str] = []
        for _, key, value in micros:
            where = workload.partition(key)
            try:
                producer.produce(
                    where.topic, b"%d" % value, partition=where.partition, on_delivery=self._delivered(key, value)
                )
            except KafkaException as error:
                self.errors.append(error.args[0])

    def _delivered(self, key: int, value: int) -> Any:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.errors.append(error)
                return
            offset = message.offset()
            assert offset is not None
            self._offsets[value] = offset
            self._workload.note(key, offset)

        return delivered

    def wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while len(self._offsets) + len(self.errors) < len(self._micros):
            if time.monotonic() > deadline:
                self.errors.append("no answer")
                return
            self._producer.poll(0.05)

    def result(self) -> list[list[Any]]:
        """The micro-operations with the offsets that are known."""
        return [["send", key, [self._offsets.get(value), value]] for _, key, value in self._micros]

    def reason(self) -> object:
        return self.errors[0] if self.errors else None


class Polling(Process):
    """Has a consumer."""

    def __init__(self, workload: Workload, random: Random) -> None:
        super().__init__(workload, random)
        self._consumer: Consumer | None = None
        self._rebalanced: dict[int, None] = {}
        # By key the offset behind the last one that was polled.
        self.positions: dict[int, int] = {}

    @property
    def consumer(self) -> Consumer:
        assert self._consumer is not None
        return self._consumer

    def open_consumer(self, group: str) -> None:
        self._rebalanced.clear()
        self._consumer = Consumer({**CONSUMER, "bootstrap.servers": self.workload.servers, "group.id": group})

    def subscribe(self) -> None:
        keys = list(self.workload.keys)

        def note(_: Consumer, partitions: list[TopicPartition]) -> None:
            self._rebalanced.update(dict.fromkeys(map(self.workload.key, partitions)))

        self.workload.recorder.invoke(self.process, "subscribe", keys)
        self.consumer.subscribe(self.workload.topics, on_assign=note, on_revoke=note, on_lost=note)
        self.end("ok", "subscribe", keys)

    def close(self) -> None:
        if self._consumer is not None:
            # The client's call has no time limit.
            closing = threading.Thread(target=close_consumer, args=(self._consumer,), daemon=True)
            self._consumer = None
            closing.start()
            closing.join(CALL_TIMEOUT_S)

    def poll(self, seconds: float = POLL_S) -> Pairs:
        """Poll once; `positions` are then behind what this returns."""
        found: dict[int, list[list[int]]] = defaultdict(list)
        for message in self.consumer.consume(POLL_RECORDS_MAX, seconds):
            if message.error() is not None:
                continue
            key, offset, value = self.workload.key(message), message.offset(), message.value()
            assert offset is not None
            assert isinstance(value, bytes)
            found[key].append([offset, int(value)])
            self.positions[key] = offset + 1
            self.workload.note(key, offset)
        return dict(found)

    def take_rebalanced(self) -> list[int]:
        """Keys that were assigned or revoked since the last call."""
        taken = list(self._rebalanced)
        self._rebalanced.clear()
        return taken


class Poller(Polling):
    """Reads partitions that it assigns itself, other ones now and then."""

    def open(self) -> None:
        self.open_consumer(f"poller-{self.process}")
        self.positions.clear()
        self.assign(list(self.workload.keys))

    def assign(self, keys: Sequence[int]) -> None:
        self.workload.recorder.invoke(self.process, "assign", list(keys))
        self.consumer.assign([self.workload.partition(key, self.positions.get(key, 0)) for key in keys])
        self.end("ok", "assign", list(keys))

    def step(self) -> None:
        if self.random.random() < ASSIGN_CHANCE:
            keys = list(self.workload.keys)
            self.assign(sorted(self.random.sample(keys, self.random.randint(1, len(keys)))))
        self.workload.recorder.invoke(self.process, "poll", [["poll"]])
        self.end("ok", "poll", [["poll", self.poll()]])


class FinalReader(Poller):
    """Reads everything once more."""

    def read(self) -> None:
        self.open()
        waiting = dict(self.workload.known)
        deadline = time.monotonic() + FINAL_S
        while waiting and time.monotonic() < deadline:
            self.step()
            waiting = {key: offset for key, offset in waiting.items() if self.positions.get(key, 0) <= offset}
        self.close()

    def step(self) -> None:
        self.workload.recorder.invoke(self.process, "poll", [["poll"]])
        self.end("ok", "poll", [["poll", self.poll()]])


class Member(Polling):
    """A member of a group, which commits what it polled before the operation ends."""

    def open(self) -> None:
        self.open_consumer("members")
        self.subscribe()

    def step(self) -> None:
        self.workload.recorder.invoke(self.process, "poll", [["poll"]])
        found = self.poll()
        error = None
        if found:
            behind = [self.workload.partition(key, self.positions[key]) for key in found]
            try:
                self.consumer.commit(offsets=behind, asynchronous=False)
            except KafkaException as failed:
                # What was read was read; the partition's next owner reads it again.
                error = failed
        self.end("ok", "poll", [["poll", found]], self.take_rebalanced(), error)


class Worker(Polling):
    """Polls, sends and commits what it polled in one transaction. Some it aborts on purpose."""

    def __init__(self, workload: Workload, random: Random, number: int) -> None:
        super().__init__(workload, random)
        self._transactional_id = f"worker-{number}"
        self._producer: Producer | None = None

    def open(self) -> None:
        self._producer = Producer(
            {
                **PRODUCER,
                "bootstrap.servers": self.workload.servers,
                "transactional.id": self._transactional_id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            }
        )
        while not self.stopped.is_set():
            try:
                self._producer.init_transactions(CALL_TIMEOUT_S)
                break
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
        self.open_consumer("workers")
        self.subscribe()

    def close(self) -> None:
        super().close()
        if self._producer is not None:
            self._producer.purge()
            self._producer = None

    def step(self) -> None:
        sends = [["send", self.choose_key(), next(self.workload.values)] for _ in range(self.random.randint(1, 3))]
        self.workload.recorder.invoke(self.process, "txn", [["poll"], *sends])
        producer = self._producer
        assert producer is not None
        found: Pairs = {}
        sent: Sends | None = None
        asked = False
        try:
            producer.begin_transaction()
            found = self.poll()
            sent = Sends(self.workload, producer, sends)
            if found:
                behind = [self.workload.partition(key, self.positions[key]) for key in found]
                producer.send_offsets_to_transaction(behind, self.consumer.consumer_group_metadata(), CALL_TIMEOUT_S)
            if self.random.random() < ABORT_CHANCE:
                producer.flush(CALL_TIMEOUT_S)
                self._abort(producer, found, sends)
                return
            asked = True
            self._commit(producer)
        except KafkaException as error:
            self._failed(producer, found, sends, error, asked=asked)
            return
        self.end("ok", "txn", [["poll", found], *sent.result()], self.take_rebalanced())

    def _commit(self, producer: Producer) -> None:
        deadline = time.monotonic() + 2 * CALL_TIMEOUT_S
        while True:
            try:
                producer.commit_transaction(CALL_TIMEOUT_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise

    def _failed(
        self, producer: Producer, found: Pairs, sends: list[list[Any]], error: KafkaException, *, asked: bool
    ) -> None:
        """Abort if that can be done. What was not tried to commit, and what was aborted, certainly had no effect."""
        aborted = False
        if error.args[0].txn_requires_abort():
            with contextlib.suppress(KafkaException):
                producer.abort_transaction(CALL_TIMEOUT_S)
                aborted = True
        value = [["poll", found], *sends]
        if aborted or not asked:
            self.end("fail", "txn", value, self.take_rebalanced(), error)
            self.renew()
        else:
            self.end("info", "txn", value, self.take_rebalanced(), error)

    def _abort(self, producer: Producer, found: Pairs, sends: list[list[Any]]) -> None:
        """Abort and go back to where the transaction began."""
        producer.abort_transaction(CALL_TIMEOUT_S)
        is_back = True
        try:
            for key, pairs in found.items():
                self.positions[key] = pairs[0][0]
                self.consumer.seek(self.workload.partition(key, self.positions[key]))
        except KafkaException:
            # The partition is another member's by now.
            is_back = False
        self.end("fail", "txn", [["poll", found], *sends], self.take_rebalanced(), "aborted on purpose")
        if not is_back:
            self.renew()
