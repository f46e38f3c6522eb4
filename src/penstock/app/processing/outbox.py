"""A producer that reports which messages brokers refuse, so that the records they were sent for are dead-lettered.

Brokers refuse whole batches: if a batch exceeds its topic's limit, librdkafka reports every message in it as too large.
So those messages are sent again, each in a batch of its own, to find the one that is too large.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import KafkaError, TopicPartition

from penstock.app.context import Message
from penstock.app.processing.transport import RecordRefused
from penstock.client.application.connection import Connection
from penstock.client.application.errors import PenstockError, TransactionAborted, explained
from penstock.client.application.producer import ONLY_FAILURES, Producer
from penstock.client.application.serdes import plain_key

# How long read_committed consumers wait for a worker that died within a commit.
TRANSACTION_TIMEOUT_S = 20.0
FLUSH_TIMEOUT_S = 60.0
# Enough for a reader that waits for room to learn of its group: see `subscription_runner.PAUSE_AFTER_S`.
COMMIT_TRIES = 7
COMMIT_BACKOFF_S = 0.5
TOO_LARGE = "MSG_SIZE_TOO_LARGE"
# Sending a message again does not help against these.
REFUSALS = frozenset((TOO_LARGE, "INVALID_MSG", "INVALID_RECORD", "INVALID_TIMESTAMP", "TOPIC_EXCEPTION"))
# Nor against these, until the topic is created or access to it is granted.
REFUSED_TOPICS = frozenset(
    ("_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_OR_PART", "TOPIC_AUTHORIZATION_FAILED")
)
# Reported for the messages of an aborted transaction.
PURGED = frozenset(("_PURGE_QUEUE", "_PURGE_INFLIGHT"))
SINGLE_MESSAGE_BATCHES = {"batch.num.messages": 1}
# With several requests in flight, librdkafka may wait for those behind a refused one until the transaction times out.
SINGLE_IN_FLIGHT = {"max.in.flight.requests.per.connection": 1}

Content = tuple[str, bytes | None, bytes | None]
Refusals = list[tuple[Message, PenstockError]]


class Outbox:
    """Messages on their way to the brokers. Its methods are called in one thread.

    Messages for `own_topics`, which the application's code names, wait for a topic that is missing; those for others,
    which a record chose, are refused.
    """

    def __init__(self, connection: Connection, transactional_id: str | None, own_topics: frozenset[str]) -> None:
        self._connection = connection
        self._transactional_id = transactional_id
        self._own_topics = own_topics
        self._in_flight: list[Message] = []
        self._refused: Refusals = []
        self._reported: dict[Content, PenstockError] = {}
        self._failure: PenstockError | None = None
        self._producer = self._open()

    def send(self, messages: Sequence[Message]) -> None:
        """Put messages into the producer's buffer. Raises errors that are not a single message's fault."""
        send = self._producer.send
        self._in_flight += messages
        for message in messages:
            try:
                send(message.topic, message.key, message.value, headers=message.headers or None)
            except PenstockError as error:
                if not self._is_refusal(error, message.topic):
                    raise
                self._refused.append((message, error))

    def flush(self) -> None:
        """Return when everything is stored. Raises Refused for messages that brokers refuse."""
        if not self._in_flight:
            return
        self._producer.flush(FLUSH_TIMEOUT_S)
        refused, doubtful = self._collect_reports()
        if doubtful:
            self._reopen(SINGLE_MESSAGE_BATCHES)
            self.send([message for message, _ in doubtful])
            self._producer.flush(FLUSH_TIMEOUT_S)
            again, alone = self._collect_reports()
            refused += again + alone
            self._reopen({})
        self._raise(refused)

    def commit(
        self, messages: Sequence[Message], positions: list[TopicPartition], group_metadata: Callable[[], Any]
    ) -> None:
        """Store messages and a group's positions in one transaction. Raises Refused, and then nothing is stored.

        The group's metadata is read again for each try, since the member's epoch may have changed.
        """
        try:
            refused, doubtful = self._try_transaction(messages, positions, group_metadata)
            if not doubtful:
                return self._raise(refused)
            self._reopen(SINGLE_MESSAGE_BATCHES)
            refused, doubtful = self._try_transaction(messages, positions, group_metadata)
            self._raise(refused + doubtful)
        finally:
            if self._has_single_batches:
                self._reopen({})

    def close(self) -> None:
        """Deliver messages in flight, and close."""
        self._producer.close()

    def _try_transaction(
        self, messages: Sequence[Message], positions: list[TopicPartition], group_metadata: Callable[[], object]
    ) -> tuple[Refusals, Refusals]:
        """Run one transaction. Returns, as `_collect_reports` does, the messages that kept it from being committed."""
        for attempt in range(1, COMMIT_TRIES + 1):
            try:
                with self._producer.transaction():
                    self.send(messages)
                    if self._refused:
                        raise TransactionAborted("a message cannot be sent")
                    if positions:
                        self._producer.send_offsets(positions, group_metadata())
            except TransactionAborted:
                refused, doubtful = self._collect_reports()
                if refused or doubtful:
                    return refused, doubtful
                if attempt == COMMIT_TRIES:
                    raise
                # The member's epoch may have changed: leave the reader time to learn of it.
                time.sleep(COMMIT_BACKOFF_S)
            else:
                self._collect_reports()
                break
        return [], []

    def _collect_reports(self) -> tuple[Refusals, Refusals]:
        """Messages that were refused, and those that may only have shared a refused batch; the others are stored."""
        sent, self._in_flight = self._in_flight, []
        refused, self._refused = self._refused, []
        reported, self._reported = self._reported, {}
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        doubtful: Refusals = []
        if reported:
            for message in sent:
                error = reported.get(_content(message))
                if error is not None:
                    is_batch = error.code == TOO_LARGE and not self._has_single_batches
                    (doubtful if is_batch else refused).append((message, error))
        return refused, doubtful

    @staticmethod
    def _raise(refused: Refusals) -> None:
        if refused:
            raise RecordRefused(refused)

    def _is_refusal(self, error: PenstockError, topic: str) -> bool:
        return error.code in REFUSALS or (error.code in REFUSED_TOPICS and topic not in self._own_topics)

    def _not_stored(self, error: KafkaError | None, message: Any) -> None:
        if error is None or error.name() in PURGED:
            return
        explanation = explained(error, f"a record for {message.topic()} was not stored")
        if self._is_refusal(explanation, message.topic()):
            self._reported[message.topic(), message.key(), message.value()] = explanation
        else:
            self._failure = explanation

    def _open(self, properties: dict[str, object] | None = None) -> Producer:
        self._has_single_batches = bool(properties)
        return Producer(
            self._connection,
            transactional_id=self._transactional_id,
            transaction_timeout_s=TRANSACTION_TIMEOUT_S,
            properties={ONLY_FAILURES: True, "on_delivery": self._not_stored}
            | (SINGLE_IN_FLIGHT if self._transactional_id is not None else {})
            | (properties or {}),
        )

    def _reopen(self, properties: dict[str, Any]) -> None:
        self._producer.close()
        self._producer = self._open(properties)


def _content(message: Message) -> Content:
    """The fields of a message that its delivery report has too."""
    return message.topic, _as_bytes(plain_key(message.key)), _as_bytes(message.value)


def _as_bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
