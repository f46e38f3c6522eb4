"""The shell of the transaction coordinator: its topic, its log, and decided transactions that it sees through."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.core.contract import ProducerIdentity
from penstock.core.metadata.topics import NewTopic, TopicOutcome
from penstock.core.transaction.listing import TransactionFilter
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.coordinator import transactions
from penstock.runtime.coordinator.transactions import TRANSACTION_TOPIC
from penstock.runtime.env import SystemEnv
from penstock.runtime.replication.partition import Partition
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from support.worlds.transaction_shell import DATA, ID, TransactionShell, caller, play


@contextmanager
def held() -> Iterator[list[asyncio.Future[None]]]:
    """Nothing is committed meanwhile; the test decides what becomes of each wait."""
    futures: list[asyncio.Future[None]] = []

    def wait(_partition: Partition, _next_offset: int, *, sync: bool = True) -> asyncio.Future[None]:  # noqa: ARG001
        futures.append(asyncio.get_running_loop().create_future())
        return futures[-1]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Partition, "committed", wait)
        yield futures


def test_the_topic_is_created_when_it_is_first_needed(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        [topic] = [one for one in shell.created if one.name == TRANSACTION_TOPIC]
        assert (topic.partitions, topic.replication_factor) == (1, 1)
        assert topic.configs == {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": "1",
            "segment.bytes": "104857600",
            "unclean.leader.election.enable": "false",
        }

    play(tmp_path, story)


def test_a_topic_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    async def run() -> None:
        shell = TransactionShell(tmp_path)

        def refuse(wanted: list[NewTopic]) -> asyncio.Future[list[TopicOutcome]]:
            answer: asyncio.Future[list[TopicOutcome]] = asyncio.get_running_loop().create_future()
            error = ErrorCode.INVALID_REPLICATION_FACTOR
            answer.set_result([TopicOutcome(one.name, error=error, message="too few brokers") for one in wanted])
            return answer

        shell.create_topics = refuse  # type: ignore[method-assign,assignment]
        with pytest.raises(ApiError, match=r"too few brokers; see transaction\.state\.log\.replication\.factor"):
            await shell.transactions.leader_of(ID)
        with pytest.raises(ApiError, match="ask FindCoordinator first"):
            await shell.started()
        await shell.close()

    asyncio.run(run())


@pytest.mark.parametrize("commit", [True, False])
def test_markers_follow_the_decision(tmp_path: Path, commit: bool) -> None:
    async def story(shell: TransactionShell) -> None:
        producer = await shell.begun()
        response = await shell.end(producer, commit)
        assert (response.error_code, response.producer_id, response.producer_epoch) == (0, 100, 1)
        await shell.until(lambda: shell.state() == ("CompleteCommit" if commit else "CompleteAbort"))
        [(partition, producer_id, producer_epoch, marker)] = shell.written
        assert (partition, producer_id, producer_epoch) == (DATA, 100, 1)
        assert (marker.aborted, marker.coordinator_epoch) == (not commit, 0)

    play(tmp_path, story)


def test_no_marker_leaves_before_its_decision_is_committed(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        producer = await shell.begun()
        with held() as futures:
            ending = asyncio.ensure_future(shell.end(producer))
            await shell.until(lambda: futures)
            await asyncio.sleep(0.02)
            assert not ending.done()
            assert shell.written == []
        futures[0].set_result(None)
        assert (await ending).error_code == ErrorCode.NONE
        await shell.until(lambda: shell.written)

    play(tmp_path, story)


def test_a_decision_that_cannot_be_written_sends_no_marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(shell: TransactionShell) -> None:
        producer = await shell.begun()

        def refuse(_partition: Partition) -> None:
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, "alone")

        with monkeypatch.context() as patched:
            patched.setattr(Partition, "check_enough_replicas", refuse)
            with pytest.raises(ApiError) as raised:
                await shell.end(producer)
        assert raised.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await shell.until(shell.is_loaded)
        assert shell.state() == "Ongoing"
        assert shell.written == []
        assert (await shell.end(producer)).error_code == ErrorCode.NONE

    play(tmp_path, story)


def test_a_new_coordinator_sends_the_markers_again(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        producer = await shell.begun()
        shell.marker_errors = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 1000
        assert (await shell.end(producer)).error_code == ErrorCode.NONE
        shell.elect_again()
        await shell.until(shell.is_loaded)
        assert shell.state() == "PrepareCommit"
        shell.marker_errors.clear()
        await shell.until(lambda: shell.state() == "CompleteCommit")
        [(_, _, _, marker)] = shell.written
        assert marker.coordinator_epoch == shell.partition.leader_epoch > 0

    play(tmp_path, story)


def test_a_log_that_is_not_committed_yet_decides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a new leader finds in its log may be lost again, until every replica in sync has it."""
    monkeypatch.setattr(transactions, "SETTLE_PAUSE_S", 0.01)

    async def story(shell: TransactionShell) -> None:
        producer = await shell.begun()
        shell.marker_errors = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 1000
        await shell.end(producer)
        with held() as futures:
            shell.elect_again()
            shell.marker_errors.clear()
            await shell.until(lambda: futures)
            futures[0].set_exception(ApiError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "alone"))
            await shell.until(lambda: len(futures) > 1)
            await asyncio.sleep(0.02)
            assert shell.written == []
        futures[1].set_result(None)
        await shell.until(lambda: shell.state() == "CompleteCommit")

    play(tmp_path, story)


def test_a_transaction_times_out_by_itself(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        request = InitProducerIdRequest(ID, 50)
        response = await shell.transactions.init_producer_id(request, caller())
        producer = ProducerIdentity(response.producer_id, response.producer_epoch)

        error = await shell.transactions.ask(
            ID, lambda shard, token, now_ms: shard.add_partitions(ID, producer, [DATA], 2, token, now_ms)
        )
        assert error is ErrorCode.NONE
        await shell.until(lambda: shell.state() == "CompleteAbort")
        assert shell.written[0][3].aborted

    play(tmp_path, story)


@pytest.mark.parametrize("jump_ms", [3_600_000, -3_600_000])
def test_a_clock_that_jumps_ends_no_transaction_early_and_none_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_ms: int
) -> None:
    right_ms, wrong_by_ms = SystemEnv.now_ms, [0]
    monkeypatch.setattr(SystemEnv, "now_ms", lambda env: right_ms(env) + wrong_by_ms[0])

    async def begin(shell: TransactionShell, name: str, timeout_ms: int) -> None:
        response = await shell.transactions.init_producer_id(InitProducerIdRequest(name, timeout_ms), caller())
        producer = ProducerIdentity(response.producer_id, response.producer_epoch)
        await shell.transactions.ask(
            name, lambda shard, token, now_ms: shard.add_partitions(name, producer, [DATA], 2, token, now_ms)
        )

    async def story(shell: TransactionShell) -> None:
        began = asyncio.get_running_loop().time()
        await begin(shell, "short", 200)
        await begin(shell, "long", 1_500)
        wrong_by_ms[0] = jump_ms
        await shell.until(lambda: len(shell.written) == 1)
        await shell.until(lambda: len(shell.written) == 2)
        assert asyncio.get_running_loop().time() - began >= 1.5

    play(tmp_path, story)


def test_a_restart_finds_everything_again(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        producer = await shell.begun()
        shell.transactions.close()
        shell.transactions = shell._new_transactions()
        await shell.until(shell.is_loaded)
        assert shell.state() == "Ongoing"
        rows = await shell.transactions.read_all(lambda shard: shard.listing(TransactionFilter(), 0))
        assert [(row.transactional_id, row.producer_id) for row in rows] == [(ID, producer.producer_id)]

    play(tmp_path, story)


def test_unused_transactional_ids_expire(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        await shell.started()
        shard = shell.transactions.coordinator.host(0).shard
        await shell.until(lambda: shard.describe(ID).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)

    quick = {
        "transactional.id.expiration.ms": "20",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "10",
    }
    play(tmp_path, story, quick)


def test_nothing_is_listed_while_something_is_loaded(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        await shell.started()
        shell.transactions.close()
        shell.transactions = shell._new_transactions()
        with pytest.raises(ApiError) as raised:
            await shell.transactions.read_all(lambda _: [1])
        assert raised.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await shell.until(shell.is_loaded)
        row = await shell.transactions.read(ID, lambda shard: shard.describe(ID))
        assert row.transaction_state == "Empty"

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("patience_ms", "answer"), [("5000", ErrorCode.NONE), ("0", ErrorCode.CONCURRENT_TRANSACTIONS)]
)
def test_the_next_transaction_waits_a_moment_for_the_markers_of_the_one_before(
    tmp_path: Path, patience_ms: str, answer: ErrorCode
) -> None:
    async def story(shell: TransactionShell) -> None:
        producer = await shell.started()
        assert await shell.transactions.add_partitions(ID, producer, [DATA]) is ErrorCode.NONE
        shell.marker_errors += [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
        request = EndTxnRequest(ID, *producer, True)
        assert (await shell.transactions.end_txn(request, caller(3))).error_code == ErrorCode.NONE
        assert shell.state() == "PrepareCommit"
        assert await shell.transactions.add_partitions(ID, producer, [DATA]) is answer

    play(tmp_path, story, {"add.partitions.to.txn.retry.backoff.max.ms": patience_ms})
