"""Questions to transaction coordinators: bundled, answered one by one, never lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from penstock.core.contract import ProducerIdentity
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import NO_LEADER, TopicPartition
from penstock.runtime.brokers import Brokers
from penstock.runtime.coordinator.transaction_verifier import TransactionVerifier
from penstock.runtime.env import SystemEnv
from penstock.runtime.peer import PeerLost
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)

HERE = 1
A, B = TopicPartition("t", 0), TopicPartition("t", 1)
PRODUCER = ProducerIdentity(7, 3)
NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS


class Coordinators:
    """Brokers that answer by transactional id, or fail; `outcomes` come first, then everything is fine."""

    def __init__(self, *outcomes: ErrorCode | Exception | AddPartitionsToTxnResponse) -> None:
        self.outcomes = [*outcomes]
        self.places: dict[str, int] = {}
        self.requests: list[tuple[int, AddPartitionsToTxnRequest]] = []
        self.gate: asyncio.Event | None = None

    def coordinator_of(self, transactional_id: str) -> int:
        return self.places.get(transactional_id, 2)

    def make_peer(self, broker_id: int) -> Any:
        coordinators = self

        class Peer:
            def send(self, message: Any, *, timeout_ms: int | None = None) -> asyncio.Future[Any]:  # noqa: ARG002
                return asyncio.ensure_future(coordinators.take(broker_id, message))

        return Peer()

    async def take(self, broker_id: int, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        self.requests.append((broker_id, request))
        if self.gate is not None:
            await self.gate.wait()
        outcome = self.outcomes.pop(0) if self.outcomes else NONE
        if isinstance(outcome, Exception):
            raise outcome
        if isinstance(outcome, AddPartitionsToTxnResponse):
            return outcome
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    one.transactional_id,
                    [
                        AddPartitionsToTxnTopicResult(
                            topic.name,
                            [AddPartitionsToTxnPartitionResult(index, outcome) for index in topic.partitions],
                        )
                        for topic in one.topics
                    ],
                )
                for one in request.transactions
            ]
        )


def tell(coordinators: Coordinators, story: Callable[[TransactionVerifier], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        env = SystemEnv()
        verifier = TransactionVerifier(
            env,
            Brokers(HERE, coordinators.make_peer, lambda request: coordinators.take(HERE, request)),
            coordinators.coordinator_of,
            retry_ms=5,
            retry_max_ms=100,
        )
        await asyncio.wait_for(story(verifier), 10)
        await env.close()

    asyncio.run(run())


def test_a_verification_request_names_producer_and_partitions() -> None:
    coordinators = Coordinators()

    async def story(verifier: TransactionVerifier) -> None:
        assert await verifier.verify("x", PRODUCER, A, False) is NONE
        assert await verifier.verify("x", PRODUCER, A, True) is NONE

    tell(coordinators, story)
    [(_, first), (_, second)] = coordinators.requests
    [row] = first.transactions
    assert (row.transactional_id, row.producer_id, row.producer_epoch, row.verify_only) == ("x", 7, 3, True)
    assert [(topic.name, [*topic.partitions]) for topic in row.topics] == [("t", [0])]
    assert not second.transactions[0].verify_only


def test_a_local_coordinator_is_called_without_a_connection() -> None:
    coordinators = Coordinators()
    coordinators.places = {"x": HERE, "y": 3}

    async def story(verifier: TransactionVerifier) -> None:
        await asyncio.gather(*(verifier.verify(name, PRODUCER, A, False) for name in ("x", "y")))

    tell(coordinators, story)
    assert sorted(broker_id for broker_id, _ in coordinators.requests) == [HERE, 3]


def test_questions_that_wait_go_together_and_each_id_once() -> None:
    coordinators = Coordinators()
    other = ProducerIdentity(7, 4)

    async def story(verifier: TransactionVerifier) -> None:
        coordinators.gate = asyncio.Event()
        asking = [asyncio.ensure_future(verifier.verify("first", PRODUCER, A, False))]
        await asyncio.sleep(0.01)
        wanted = [("x", PRODUCER, A), ("x", PRODUCER, B), ("x", PRODUCER, A), ("x", other, A), ("y", PRODUCER, A)]
        asking += [asyncio.ensure_future(verifier.verify(*one, False)) for one in wanted]
        await asyncio.sleep(0.01)
        assert len(coordinators.requests) == 1
        coordinators.gate.set()
        assert set(await asyncio.gather(*asking)) == {NONE}

    tell(coordinators, story)
    rows = [
        [(one.transactional_id, one.producer_epoch, [*one.topics[0].partitions]) for one in request.transactions]
        for _, request in coordinators.requests
    ]
    assert rows == [[("first", 3, [0])], [("x", 3, [0, 1]), ("y", 3, [0])], [("x", 4, [0])]]


def test_no_answer_is_an_answer() -> None:
    coordinators = Coordinators(
        PeerLost("gone"),
        ApiError(ErrorCode.NOT_COORDINATOR),
        AddPartitionsToTxnResponse(),
        AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    )
    coordinators.places = {"nowhere": NO_LEADER}

    async def story(verifier: TransactionVerifier) -> None:
        for _ in range(3):
            assert await verifier.verify("x", PRODUCER, A, False) is ErrorCode.NETWORK_EXCEPTION
        assert await verifier.verify("x", PRODUCER, A, False) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert await verifier.verify("nowhere", PRODUCER, A, False) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await verifier.verify("x", PRODUCER, A, False) is NONE

    tell(coordinators, story)


def test_adding_waits_a_little_for_the_transaction_before_to_end() -> None:
    coordinators = Coordinators(CONCURRENT, CONCURRENT)

    async def story(verifier: TransactionVerifier) -> None:
        assert await verifier.verify("x", PRODUCER, A, True) is NONE
        coordinators.outcomes = [CONCURRENT] * 1000
        assert await verifier.verify("x", PRODUCER, A, True) is CONCURRENT
        before = len(coordinators.requests)
        assert await verifier.verify("x", PRODUCER, A, False) is CONCURRENT
        assert len(coordinators.requests) == before + 1

    tell(coordinators, story)
    assert len(coordinators.requests) < 40


def test_a_caller_that_gives_up_cancels_no_other() -> None:
    coordinators = Coordinators()

    async def story(verifier: TransactionVerifier) -> None:
        coordinators.gate = asyncio.Event()
        asking = [asyncio.ensure_future(verifier.verify("x", PRODUCER, A, False)) for _ in range(2)]
        await asyncio.sleep(0.01)
        asking[0].cancel()
        await asyncio.sleep(0)
        coordinators.gate.set()
        assert await asking[1] is NONE

    tell(coordinators, story)
    assert len(coordinators.requests) == 1


def test_a_failure_of_our_own_leaves_no_request_waiting() -> None:
    coordinators = Coordinators(TypeError("a bug"))

    async def story(verifier: TransactionVerifier) -> None:
        coordinators.gate = asyncio.Event()
        asking = [asyncio.ensure_future(verifier.verify("first", PRODUCER, A, False))]
        await asyncio.sleep(0.01)
        asking.append(asyncio.ensure_future(verifier.verify("behind", PRODUCER, A, False)))
        await asyncio.sleep(0.01)
        coordinators.gate.set()
        assert await asyncio.wait_for(asyncio.gather(*asking), 1) == [ErrorCode.NETWORK_EXCEPTION] * 2
        assert await verifier.verify("first", PRODUCER, A, False) is NONE

    tell(coordinators, story)
