"""Asks transaction coordinators whether partitions are part of a producer's open transaction, before the first write.

A produce that was delayed past its transaction's end would otherwise start one that is never ended. For clients of
version 2 this request also adds the partition to the transaction (`adds`). There is one request at a time per broker,
with all pending questions, each transactional id at most once.

The answer is the coordinator's error code. NETWORK_EXCEPTION stands for no answer, COORDINATOR_NOT_AVAILABLE for no
coordinator. While the previous transaction is still being completed, `adds` retries for a short while, since that is
what a client that continues right away meets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from penstock.core.contract import ProducerIdentity
from penstock.core.transaction.transaction import by_topic
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import NO_LEADER, TopicPartition
from penstock.runtime.brokers import Brokers
from penstock.runtime.env import Env
from penstock.runtime.live_settings import LiveSettings
from penstock.runtime.peer import PeerLost
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

# Whether a partition is part of a producer's open transaction; with the last argument it is added.
Verify = Callable[[str, ProducerIdentity, TopicPartition, bool], Awaitable[ErrorCode]]

logger = logging.getLogger("penstock.transactions")


def is_verification_enabled(settings: LiveSettings) -> bool:
    """transaction.partition.verification.enable, which may change while the cluster runs."""
    return settings.current().transaction_partition_verification_enable


@dataclass(slots=True, eq=False)
class Question:
    """The question about one transaction, and who waits for the answer about each partition."""

    transactional_id: str
    producer: ProducerIdentity
    adds: bool
    waiting: dict[TopicPartition, asyncio.Future[ErrorCode]] = field(default_factory=dict)

    def answer(self, errors: dict[TopicPartition, ErrorCode], otherwise: ErrorCode) -> None:
        """Answer all requests that wait."""
        for partition, future in self.waiting.items():
            if not future.done():
                future.set_result(errors.get(partition, otherwise))


class TransactionVerifier:
    """This broker's verification requests to transaction coordinators, one of which it may be itself."""

    def __init__(
        self,
        env: Env,
        brokers: Brokers,
        coordinator_of: Callable[[str], int],
        *,
        retry_ms: int,
        retry_max_ms: int,
    ) -> None:
        """`coordinator_of` returns the leader of a transactional id's partition, NO_LEADER for none.

        `retry_ms` and `retry_max_ms` are the retry pause and time limit of `adds`."""
        self._env = env
        self._brokers = brokers
        self._coordinator_of = coordinator_of
        self._retry_ms = retry_ms
        self._retry_max_ms = retry_max_ms
        # By coordinator, and then by kind of request.
        self._questions: dict[int, dict[tuple[str, ProducerIdentity, bool], Question]] = {}
        # Brokers that have a task asking them.
        self._busy: set[int] = set()

    async def verify(
        self, transactional_id: str, producer: ProducerIdentity, partition: TopicPartition, adds: bool
    ) -> ErrorCode:
        """Whether a partition is part of the producer's open transaction; with `adds` it is added."""
        deadline_ms = self._env.monotonic_ms() + self._retry_max_ms
        while True:
            error = await self._ask_once(transactional_id, producer, partition, adds)
            is_patient = adds and self._env.monotonic_ms() + self._retry_ms <= deadline_ms
            if error is not ErrorCode.CONCURRENT_TRANSACTIONS or not is_patient:
                return error
            await asyncio.sleep(self._retry_ms / 1000)

    async def _ask_once(
        self, transactional_id: str, producer: ProducerIdentity, partition: TopicPartition, adds: bool
    ) -> ErrorCode:
        broker_id = self._coordinator_of(transactional_id)
        if broker_id == NO_LEADER:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        questions = self._questions.setdefault(broker_id, {})
        asked = transactional_id, producer, adds
        question = questions.get(asked)
        if question is None:
            question = questions[asked] = Question(*asked)
        answer = question.waiting.get(partition)
        if answer is None:
            answer = question.waiting[partition] = asyncio.get_running_loop().create_future()
        if broker_id not in self._busy:
            self._busy.add(broker_id)
            self._env.spawn(self._put(broker_id), f"verify transactions at {broker_id}")
        # If one caller gives up, the others still get their answer.
        return await asyncio.shield(answer)

    async def _put(self, broker_id: int) -> None:
        try:
            while self._questions[broker_id]:
                questions = self._take(broker_id)
                try:
                    response = await self._brokers.ask(broker_id, _request(questions))
                except (PeerLost, ApiError) as error:
                    logger.info("transactions could not be verified at broker %d: %s", broker_id, error)
                else:
                    _answer(questions, response)
                finally:
                    # Whatever went wrong, no request waits for ever.
                    for question in questions:
                        question.answer({}, ErrorCode.NETWORK_EXCEPTION)
        finally:
            self._busy.discard(broker_id)
            for question in self._questions.pop(broker_id).values():
                question.answer({}, ErrorCode.NETWORK_EXCEPTION)

    def _take(self, broker_id: int) -> list[Question]:
        """What goes into the next request: the first question about each transactional id."""
        waiting = self._questions[broker_id]
        taken: dict[str, Question] = {}
        for question in waiting.values():
            taken.setdefault(question.transactional_id, question)
        self._questions[broker_id] = {
            asked: question for asked, question in waiting.items() if taken[question.transactional_id] is not question
        }
        return [*taken.values()]


def _request(questions: list[Question]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        [
            AddPartitionsToTxnTransaction(
                question.transactional_id,
                *question.producer,
                not question.adds,
                [AddPartitionsToTxnTopic(*row) for row in by_topic(question.waiting).items()],
            )
            for question in questions
        ]
    )


def _answer(questions: list[Question], response: AddPartitionsToTxnResponse) -> None:
    rows = {row.transactional_id: row.topic_results for row in response.results_by_transaction}
    refused = ErrorCode(response.error_code)
    otherwise = ErrorCode.NETWORK_EXCEPTION if refused is ErrorCode.NONE else refused
    for question in questions:
        errors = {
            TopicPartition(topic.name, row.partition_index): ErrorCode(row.partition_error_code)
            for topic in rows.get(question.transactional_id, ())
            for row in topic.results_by_partition
        }
        question.answer(errors, otherwise)
