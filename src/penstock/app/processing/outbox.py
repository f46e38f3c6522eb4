"""A producer that says which messages brokers refuse, so that the records they were sent for can be put aside.

Brokers refuse whole batches: of one that is larger than its topic takes, librdkafka reports every message as too large.
So those are sent again, each in a batch of its own, which tells the large one from its neighbours.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import KafkaError, TopicPartition

from penstock.app.context import Message
from penstock.app.lines.transport import Refused
from penstock.client.application.connection import Connection
from penstock.client.application.errors import PenstockError, TransactionAborted, explained
from penstock.client.application.producer import ONLY_FAILURES, Producer
from penstock.client.application.serdes import plain_key

# Readers of what is sent wait so long for a worker that died within a commit.
TRANSACTION_TIMEOUT_S = 20.0
FLUSH_TIMEOUT_S = 60.0
# Enough for a reader that waits for room to hear of its group: see `line.PAUSE_AFTER_S`.
COMMIT_TRIES = 7
COMMIT_PAUSE_S = 0.5
TOO_LARGE = "MSG_SIZE_TOO_LARGE"
# Sending a message again does not help against these.
REFUSALS = frozenset((TOO_LARGE, "INVALID_MSG", "INVALID_RECORD", "INVALID_TIMESTAMP", "TOPIC_EXCEPTION"))
# Nor against these, but somebody may create the topic, or give access to it.
REFUSED_TOPICS = frozenset(
    ("_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_OR_PART", "TOPIC_AUTHORIZATION_FAILED")
)
# An aborted transaction's messages are thrown away.
THROWN_AWAY = frozenset(("_PURGE_QUEUE", "_PURGE_INFLIGHT"))
ONE_BY_ONE = {"batch.num.messages": 1}
# With several, librdkafka may wait for those behind a refused one until the transaction times out.
ONE_AT_A_TIME = {"max.in.flight.requests.per.connection": 1}

Content = tuple[str, bytes | None, bytes | None]
Refusals = list[tuple[Message, PenstockError]]


class Outbox:
    """Messages on their way. Its methods are called in one thread.

    Messages for `own_topics`, which the application's code names, wait for a topic that is missing; those for others,
    which a record chose, are refused.
    """

    def __init__(self, connection: Connection, transactional_id: str | None, own_topics: frozenset[str]) -> None:
        self._connection = connection
        self._transactional_id = transactional_id
        self._own_topics = own_topics
        self._on_its_way: list[Message] = []
        self._refused: Refusals = []
        self._reported: dict[Content, PenstockError] = {}
        self._failure: PenstockError | None = None
        self._producer = self._open()

    def send(self, messages: Sequence[Message]) -> None:
        """Put messages into the producer's buffer. Raises what is no single message's fault."""
        send = self._producer.send
        self._on_its_way += messages
        for message in messages:
            try:
                send(message.topic, message.key, message.value, headers=message.headers or None)
            except PenstockError as error:
                if not self._is_refusal(error, message.topic):
                    raise
                self._refused.append((message, error))

    def flush(self) -> None:
        """Return when everything is stored. Raises Refused for messages that no broker takes."""
        if not self._on_its_way:
            return
        self._producer.flush(FLUSH_TIMEOUT_S)
        refused, doubtful = self._settle()
        if doubtful:
            self._reopen(ONE_BY_ONE)
            self.send([message for message, _ in doubtful])
            self._producer.flush(FLUSH_TIMEOUT_S)
            again, alone = self._settle()
            refused += again + alone
            self._reopen({})
        self._raise(refused)

    def commit(
        self, messages: Sequence[Message], positions: list[TopicPartition], group_metadata: Callable[[], Any]
    ) -> None:
        """Store messages and a group's positions in one transaction. Raises Refused, and then nothing is stored.

        The group's metadata is asked for at each try, since the member's epoch may have changed.
        """
        try:
            refused, doubtful = self._try_transaction(messages, positions, group_metadata)
            if not doubtful:
                return self._raise(refused)
            self._reopen(ONE_BY_ONE)
            refused, doubtful = self._try_transaction(messages, positions, group_metadata)
            self._raise(refused + doubtful)
        finally:
            if self._is_one_by_one:
                self._reopen({})

    def close(self) -> None:
        """Deliver what is on its way, and close."""
        self._producer.close()

    def _try_transaction(
        self, messages: Sequence[Message], positions: list[TopicPartition], group_metadata: Callable[[], Any]
    ) -> tuple[Refusals, Refusals]:
        """One transaction, and as `_settle` what kept it from being committed."""
        for attempt in range(1, COMMIT_TRIES + 1):
            try:
                with self._producer.transaction():
                    self.send(messages)
                    if self._refused:
                        raise TransactionAborted("a message cannot be sent")
                    if positions:
                        self._producer.send_offsets(positions, group_metadata())
            except TransactionAborted:
                refused, doubtful = self._settle()
                if refused or doubtful:
                    return refused, doubtful
                if attempt == COMMIT_TRIES:
                    raise
                # The member's epoch may have changed: the reader learns of it.
                time.sleep(COMMIT_PAUSE_S)
            else:
                self._settle()
                break
        return [], []

    def _settle(self) -> tuple[Refusals, Refusals]:
        """Which messages were refused, and which may only have been in a batch that was; the others are stored."""
        sent, self._on_its_way = self._on_its_way, []
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
                    is_batch = error.code == TOO_LARGE and not self._is_one_by_one
                    (doubtful if is_batch else refused).append((message, error))
        return refused, doubtful

    @staticmethod
    def _raise(refused: Refusals) -> None:
        if refused:
            raise Refused(refused)

    def _is_refusal(self, error: PenstockError, topic: str) -> bool:
        return error.code in REFUSALS or (error.code in REFUSED_TOPICS and topic not in self._own_topics)

    def _not_stored(self, error: KafkaError | None, message: Any) -> None:
        if error is None or error.name() in THROWN_AWAY:
            return
        explanation = explained(error, f"a record for {message.topic()} was not stored")
        if self._is_refusal(explanation, message.topic()):
            self._reported[message.topic(), message.key(), message.value()] = explanation
        else:
            self._failure = explanation

    def _open(self, properties: dict[str, Any] | None = None) -> Producer:
        self._is_one_by_one = bool(properties)
        return Producer(
            self._connection,
            transactional_id=self._transactional_id,
            transaction_timeout_s=TRANSACTION_TIMEOUT_S,
            properties={ONLY_FAILURES: True, "on_delivery": self._not_stored}
            | (ONE_AT_A_TIME if self._transactional_id is not None else {})
            | (properties or {}),
        )

    def _reopen(self, properties: dict[str, Any]) -> None:
        self._producer.close()
        self._producer = self._open(properties)


def _content(message: Message) -> Content:
    """What a delivery report says of a message."""
    return message.topic, _as_bytes(plain_key(message.key)), _as_bytes(message.value)


def _as_bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
