"""What a coordinator decided and could not write: no client reads it, and nothing is deleted because of it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.api.groups.offset_fetch import offset_fetch
from penstock.core.contract import Caller, Effects, ProducerIdentity, Token
from penstock.core.group.shard import GroupShard
from penstock.core.metadata.topics import NewTopic
from penstock.core.replica.producer_state import EndMarker
from penstock.core.share.runs import RecordState, StateBatch
from penstock.core.share.state import ShareKey, StateWrite
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.runtime.coordinator import shards
from penstock.runtime.coordinator.groups import Groups
from penstock.runtime.replication.partition import Partition
from penstock.runtime.security.access_control import OPEN
from penstock.runtime.share.states import ShareStates
from penstock.storage.files import StorageError
from penstock.storage.log import Log, LogSlice
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.end_txn import EndTxnResponse
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.metadata_records import RemoveTopicRecord
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from penstock.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Subtopology, Topology
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from support.worlds.transaction_shell import DATA, ID, TransactionShell, call, play

CALLER = Caller("client", "/127.0.0.1", 1)
SHARE_SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.snapshot.update.records.per.snapshot": "1",
}


def fill_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is appended from now on is refused."""

    def refuse(*_: Any) -> None:
        raise StorageError("no space left", errno.ENOSPC)

    monkeypatch.setattr(Partition, "append", refuse)


def commit(groups: Groups, offset: int) -> asyncio.Future[Any]:
    topics = [OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, offset)])]
    request = OffsetCommitRequest("readers", topics=topics)
    return groups.ask("readers", lambda shard, token, now_ms: shard.offset_commit(request, CALLER, token, now_ms))


def test_an_offset_that_cannot_be_written_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(shell: TransactionShell) -> None:
        groups = Groups(shell.env, shell.image, shell, shell.partitions, shell.settings)
        await groups.leader_of("readers")
        await shell.until(lambda: groups.coordinator.hosts())
        await commit(groups, 5)
        fill_disk(monkeypatch)
        refused = commit(groups, 6)
        with pytest.raises(ApiError) as error:
            await groups.read("readers", lambda shard: shard.list_groups())
        assert error.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        with pytest.raises(ApiError):
            await refused
        groups.close()

    play(tmp_path, story)


def test_a_shard_is_loaded_again_after_a_bug_in_the_middle_of_a_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(shell: TransactionShell) -> None:
        groups = Groups(shell.env, shell.image, shell, shell.partitions, shell.settings)
        await groups.leader_of("readers")
        await shell.until(lambda: groups.coordinator.hosts())
        await commit(groups, 5)
        real = GroupShard.replay

        def replay(shard: GroupShard, *arguments: Any) -> None:
            real(shard, *arguments)
            raise AssertionError("a bug")

        monkeypatch.setattr(GroupShard, "replay", replay)
        with pytest.raises(AssertionError):
            commit(groups, 6)
        monkeypatch.setattr(GroupShard, "replay", real)
        await shell.until(lambda: groups.coordinator.hosts())
        progress = await groups.read("readers", lambda shard: shard.committed("readers"))
        assert [one.committed.offset for one in progress.values()] == [5]
        groups.close()

    play(tmp_path, story)


def test_loaded_state_is_not_returned_before_it_is_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(shell: TransactionShell) -> None:
        states, key = await states_of(shell)
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(Partition, "committed", lambda *_: committed)
        partition = states.coordinator.hosts()[0].partition
        states.coordinator.leave(partition)
        states.coordinator.take(partition)
        await shell.until(lambda: states.coordinator.hosts())
        # A state epoch that is fenced: nothing has to be written.
        answer = asyncio.ensure_future(states.initialize(key, 0, 0))
        await asyncio.sleep(0.01)
        assert not answer.done()
        committed.set_result(None)
        assert (await answer).error is ErrorCode.FENCED_STATE_EPOCH
        states.close()

    play(tmp_path, story, SHARE_SETTINGS)


async def states_of(shell: TransactionShell) -> tuple[ShareStates, ShareKey]:
    """A share coordinator with one share-partition."""
    states = ShareStates(shell.env, shell.image, shell, shell.partitions, shell.settings, lambda _: None)
    shell.create_topics([NewTopic("orders", 1, 1)])
    key = ShareKey("workers", shell.image.topics["orders"].topic_id, 0)
    await states.leader_of(key.coordinator_key)
    await shell.until(lambda: states.coordinator.hosts())
    await states.initialize(key, 1, 0)
    return states, key


def test_the_only_snapshot_stays_if_the_next_one_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(shell: TransactionShell) -> None:
        states, key = await states_of(shell)
        change = StateWrite(1, 0, 0, 0, (StateBatch(0, 9, RecordState.ACKNOWLEDGED, 1),))
        await states.write(key, change)
        host = states.coordinator.hosts()[0]
        fill_disk(monkeypatch)
        refused = asyncio.ensure_future(states.write(key, change))
        await asyncio.sleep(0)
        await states.prune(host)
        assert host.partition.log.start_offset == 0
        with pytest.raises(ApiError):
            await refused
        states.close()

    play(tmp_path, story, SHARE_SETTINGS)


def test_a_shard_that_was_left_decides_nothing(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        states, _ = await states_of(shell)
        host = states.coordinator.hosts()[0]
        before = host.partition.log.end_offset
        host.leave()
        (effects,) = host.shard.snapshot_cold(1 << 60, 0)
        assert effects.records
        host.perform(effects)
        await asyncio.sleep(0.01)
        assert host.partition.log.end_offset == before
        states.close()

    play(tmp_path, story, SHARE_SETTINGS)


class Asked:
    """Finds out that this broker leads, or that it cannot know; counts the questions."""

    def __init__(self) -> None:
        self.answer = True
        self.questions = 0

    async def confirm(self, _: Partition) -> bool:
        self.questions += 1
        await asyncio.sleep(0)
        return self.answer


def test_no_client_gives_up_because_of_a_coordinator_that_may_have_been_replaced(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        asked = shell.partitions.leadership = Asked()  # type: ignore[assignment]
        await shell.ready()
        producer = await shell.begun()
        stranger = producer._replace(producer_epoch=producer.producer_epoch + 3)
        assert asked.questions == 0
        assert (await shell.end(stranger)).error_code == ErrorCode.PRODUCER_FENCED
        assert asked.questions == 1
        asked.answer = False
        answers = await asyncio.gather(*(shell.end(stranger) for _ in range(50)), return_exceptions=True)
        assert {error.code for error in answers if isinstance(error, ApiError)} == {ErrorCode.NOT_COORDINATOR}
        assert len(answers) == 50
        # What is written is confirmed by the replicas.
        assert (await shell.end(producer)).error_code == ErrorCode.NONE

    play(tmp_path, story)


def test_no_client_gives_up_because_of_what_such_a_coordinator_looks_up(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        asked = shell.partitions.leadership = Asked()  # type: ignore[assignment]
        producer = await shell.begun()
        stranger = producer._replace(producer_epoch=producer.producer_epoch + 3)

        async def verify(one: ProducerIdentity, partition: TopicPartition = DATA, name: str = ID) -> ErrorCode:
            found = await shell.transactions.read(
                ID, lambda shard: shard.verify_partitions(name, one, [DATA, partition])
            )
            return found[partition]

        async def answered(code: ErrorCode) -> ErrorCode:
            return ErrorCode((await shell.transactions.read(ID, lambda _: EndTxnResponse(error_code=code))).error_code)

        async def raised(code: ErrorCode) -> ErrorCode:
            def refuse(_: object) -> None:
                raise ApiError(code, "refused")

            await shell.transactions.read(ID, refuse)
            return ErrorCode.NONE

        async def outcome(answer: Awaitable[ErrorCode]) -> ErrorCode:
            try:
                return await answer
            except ApiError as error:
                return error.code

        assert await verify(producer) is ErrorCode.NONE
        assert await outcome(raised(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert await answered(ErrorCode.CONCURRENT_TRANSACTIONS) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert asked.questions == 0
        final: list[tuple[Callable[[], Awaitable[ErrorCode]], ErrorCode]] = [
            (lambda: verify(stranger), ErrorCode.PRODUCER_FENCED),
            (lambda: verify(producer, TopicPartition("t", 1)), ErrorCode.TRANSACTION_ABORTABLE),
            (lambda: verify(producer, name="unknown"), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
            (lambda: answered(ErrorCode.UNKNOWN_MEMBER_ID), ErrorCode.UNKNOWN_MEMBER_ID),
            (lambda: raised(ErrorCode.UNKNOWN_MEMBER_ID), ErrorCode.UNKNOWN_MEMBER_ID),
        ]
        for number, (ask, error) in enumerate(final, 1):
            asked.answer = True
            assert await outcome(ask()) is error
            assert asked.questions == 2 * number - 1
            asked.answer = False
            assert await outcome(ask()) is ErrorCode.NOT_COORDINATOR
        assert await verify(producer) is ErrorCode.NONE

    play(tmp_path, story)


async def groups_of(shell: TransactionShell) -> Groups:
    groups = Groups(shell.env, shell.image, shell, shell.partitions, shell.settings)
    await groups.leader_of("readers")
    await shell.until(lambda: groups.coordinator.hosts())
    return groups


SHARE_HEARTBEAT = ShareGroupHeartbeatRequest("workers", "gone", 3)
STREAMS_HEARTBEAT = StreamsGroupHeartbeatRequest("flow", "gone", 3)
LEAVING = LeaveGroupRequest("readers", "", [MemberIdentity("gone")])
LATE_COMMIT = OffsetCommitRequest(
    "readers", 3, "gone", topics=[OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, 9)])]
)
LATE_TRANSACTION = TxnOffsetCommitRequest(
    ID,
    "readers",
    100,
    0,
    3,
    "gone",
    topics=[TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(0, 9)])],
)


@pytest.mark.parametrize(
    "question",
    [
        lambda shard, token, now_ms: shard.share.heartbeat(SHARE_HEARTBEAT, CALLER, token, now_ms),
        lambda shard, token, now_ms: shard.streams.heartbeat(STREAMS_HEARTBEAT, CALLER, token, now_ms),
        lambda shard, token, now_ms: shard.leave_group(LEAVING, CALLER._replace(api_version=3), token, now_ms),
        lambda shard, token, now_ms: shard.offset_commit(LATE_COMMIT, CALLER, token, now_ms),
        lambda shard, token, now_ms: shard.txn_offset_commit(LATE_TRANSACTION, CALLER, token, now_ms),
    ],
    ids=["share heartbeat", "streams heartbeat", "leave", "commit", "transactional commit"],
)
def test_errors_within_an_answer_make_no_client_give_up_either(
    tmp_path: Path, question: Callable[[GroupShard, Token, int], Effects]
) -> None:
    """Of a commit each partition has the error, of members that leave each one, and some heartbeats come with more."""

    async def story(shell: TransactionShell) -> None:
        asked = shell.partitions.leadership = Asked()  # type: ignore[assignment]
        groups = await groups_of(shell)
        await commit(groups, 5)
        sharing = ShareGroupHeartbeatRequest("workers", "member", 0, None, ["t"])
        await groups.ask("workers", lambda shard, *rest: shard.share.heartbeat(sharing, CALLER, *rest))
        streaming = StreamsGroupHeartbeatRequest(
            "flow",
            "member",
            rebalance_timeout_ms=1_000,
            topology=Topology(0, [Subtopology("0", ["t"])]),
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            process_id="process",
        )
        await groups.ask("flow", lambda shard, *rest: shard.streams.heartbeat(streaming, CALLER, *rest))
        assert asked.questions == 0
        await groups.ask("readers", question)
        assert asked.questions == 1
        asked.answer = False
        with pytest.raises(ApiError) as error:
            await groups.ask("readers", question)
        assert error.value.code is ErrorCode.NOT_COORDINATOR
        groups.close()

    play(tmp_path, story, {"offsets.topic.num.partitions": "1"})


def test_the_groups_of_a_request_are_confirmed_together(tmp_path: Path) -> None:
    """A coordinator that is cut off takes a second to find out: for each of hundreds of groups that were minutes."""

    async def story(shell: TransactionShell) -> None:
        asked = shell.partitions.leadership = Asked()  # type: ignore[assignment]
        groups = await groups_of(shell)
        names = [f"readers-{number}" for number in range(50)]
        joining = ConsumerGroupHeartbeatRequest(
            "", "member", 0, rebalance_timeout_ms=10_000, subscribed_topic_names=["t"], topic_partitions=[]
        )

        async def join(name: str) -> None:
            request = joining._replace(group_id=name)
            await groups.ask(name, lambda shard, *rest: shard.consumer.heartbeat(request, CALLER, *rest))

        for name in names:
            await join(name)
        assert asked.questions == 0
        found: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        confirm = asked.confirm

        async def confirm_later(partition: Partition) -> bool:
            answer = await confirm(partition)
            await found
            return answer

        asked.confirm = confirm_later  # type: ignore[method-assign]
        services: Any = SimpleNamespace(access=OPEN, groups=groups, image=shell.image)
        wanted = [OffsetFetchRequestGroup(name, "gone", 3, None) for name in names]
        fetching = asyncio.ensure_future(call(partial(offset_fetch, services), OffsetFetchRequest(groups=wanted), 9))
        await shell.until(lambda: asked.questions == len(names))
        found.set_result(None)
        response = await fetching
        found_errors = [(group.group_id, group.error_code) for group in response.groups]
        assert found_errors == [(name, ErrorCode.UNKNOWN_MEMBER_ID) for name in names]
        groups.close()

    play(tmp_path, story)


class FailingReads:
    """So many reads of logs fail, those that are next."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failures: int) -> None:
        self.failures = failures
        real = Log.read

        def read(log: Log, *arguments: Any, **options: Any) -> LogSlice:
            if self.failures:
                self.failures -= 1
                raise StorageError("cannot open: too many open files", errno.EMFILE)
            return real(log, *arguments, **options)

        monkeypatch.setattr(Log, "read", read)
        monkeypatch.setattr(shards, "RELOAD_PAUSE_S", 0.001)


def test_groups_are_loaded_again_after_a_passing_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(shell: TransactionShell) -> None:
        groups = Groups(shell.env, shell.image, shell, shell.partitions, shell.settings)
        await groups.leader_of("readers")
        await shell.until(lambda: groups.coordinator.hosts())
        await commit(groups, 5)
        (host,) = groups.coordinator.hosts()
        reads = FailingReads(monkeypatch, 3)
        groups.coordinator.leave(host.partition)
        groups.coordinator.take(host.partition)
        assert groups.coordinator.is_loading
        await shell.until(lambda: groups.coordinator.hosts())
        assert reads.failures == 0
        await commit(groups, 6)
        progress = await groups.read("readers", lambda shard: shard.committed("readers"))
        assert [one.committed.offset for one in progress.values()] == [6]
        groups.close()

    play(tmp_path, story)


def test_share_state_is_loaded_again_from_its_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(shell: TransactionShell) -> None:
        states, key = await states_of(shell)
        await states.write(key, StateWrite(1, 0, 0, 0, (StateBatch(0, 9, RecordState.ACKNOWLEDGED, 1),)))
        before = await states.summary(key)
        (host,) = states.coordinator.hosts()
        real, calls = Log.read, iter((False, True))

        def read(log: Log, offset: int, _: int, **options: Any) -> LogSlice:
            if next(calls, False):
                raise StorageError("a bad sector", errno.EIO)
            # One batch at a time: what the first read brought was replayed already when the second one fails.
            return real(log, offset, 1, **options)

        monkeypatch.setattr(shards, "RELOAD_PAUSE_S", 0.001)
        monkeypatch.setattr(Log, "read", read)
        states.coordinator.leave(host.partition)
        states.coordinator.take(host.partition)
        await shell.until(lambda: states.coordinator.hosts())
        assert await states.summary(key) == before
        states.close()

    play(tmp_path, story, SHARE_SETTINGS)


def test_transactions_are_loaded_again_and_carried_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(shell: TransactionShell) -> None:
        producer = await shell.begun()
        reads = FailingReads(monkeypatch, 2)
        shell.elect_again()
        assert not shell.is_loaded()
        await shell.until(shell.is_loaded)
        assert reads.failures == 0
        assert (await shell.end(producer)).error_code == ErrorCode.NONE
        await shell.until(lambda: shell.state() == "CompleteCommit")

    play(tmp_path, story)


def test_a_shard_that_was_left_while_it_could_not_be_loaded_stays_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(shell: TransactionShell) -> None:
        states, _ = await states_of(shell)
        (host,) = states.coordinator.hosts()
        reads = FailingReads(monkeypatch, 1_000)
        states.coordinator.leave(host.partition)
        states.coordinator.take(host.partition)
        await shell.until(lambda: reads.failures < 1_000)
        states.coordinator.leave(host.partition)
        reads.failures = 0
        await asyncio.sleep(0.02)
        assert states.coordinator.hosts() == []
        assert not states.coordinator.is_loading
        states.close()

    play(tmp_path, story, SHARE_SETTINGS)


def delete_topic(shell: TransactionShell, name: str) -> list[RemoveTopicRecord]:
    records = [RemoveTopicRecord(shell.image.topics[name].topic_id)]
    shell.commit(*records)
    return records


def test_share_state_of_a_topic_that_was_deleted_meanwhile_is_forgotten(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        states, key = await states_of(shell)
        (host,) = states.coordinator.hosts()
        states.coordinator.leave(host.partition)
        # No coordinator is loaded while the topic is deleted.
        states.follow(delete_topic(shell, "orders"))
        states.coordinator.take(host.partition)
        await shell.until(lambda: states.coordinator.hosts())
        (host,) = states.coordinator.hosts()
        assert key not in host.shard._states
        states.coordinator.leave(host.partition)
        states.coordinator.take(host.partition)
        await shell.until(lambda: states.coordinator.hosts())
        (host,) = states.coordinator.hosts()
        assert host.shard._states == {}
        assert host.shard.redundant_before(host.partition.log.end_offset) == host.partition.log.end_offset
        states.close()

    play(tmp_path, story, SHARE_SETTINGS)


def test_offsets_of_a_topic_that_is_deleted_while_they_are_loaded_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(shell: TransactionShell) -> None:
        groups = Groups(shell.env, shell.image, shell, shell.partitions, shell.settings)
        await groups.leader_of("readers")
        await shell.until(lambda: groups.coordinator.hosts())
        await commit(groups, 5)
        (host,) = groups.coordinator.hosts()
        reads = FailingReads(monkeypatch, 1_000)
        groups.coordinator.leave(host.partition)
        groups.coordinator.take(host.partition)
        await shell.until(lambda: reads.failures < 1_000)
        groups.follow(delete_topic(shell, "t"))
        # Its successor has the same name.
        await shell.create_topics([NewTopic("t", 1, 1)])
        reads.failures = 0
        await shell.until(lambda: groups.coordinator.hosts())
        assert await groups.read("readers", lambda shard: shard.committed("readers")) == {}
        groups.close()

    play(tmp_path, story)


@pytest.mark.parametrize("is_created_again", [False, True])
@pytest.mark.parametrize("transactional", [False, True])
def test_offsets_of_a_topic_that_was_deleted_while_no_coordinator_was_there_are_forgotten(
    tmp_path: Path, is_created_again: bool, transactional: bool
) -> None:
    async def story(shell: TransactionShell) -> None:
        groups = await groups_of(shell)
        if transactional:
            request = LATE_TRANSACTION._replace(generation_id=-1, member_id="")
            await groups.ask("readers", lambda shard, *rest: shard.txn_offset_commit(request, CALLER, *rest))
            await groups.end_transaction(0, ProducerIdentity(100, 0), EndMarker(False, 0, 0))
        else:
            await commit(groups, 5)
        (host,) = groups.coordinator.hosts()
        groups.coordinator.leave(host.partition)
        delete_topic(shell, "t")
        if is_created_again:
            await shell.create_topics([NewTopic("t", 1, 1)])
        for _ in range(2):
            groups.coordinator.take(host.partition)
            await shell.until(lambda: groups.coordinator.hosts())
            assert await committed_offset(groups) == -1
            assert await groups.read("readers", lambda shard: shard.committed("readers")) == {}
            groups.coordinator.leave(host.partition)
        groups.coordinator.take(host.partition)
        await shell.until(lambda: groups.coordinator.hosts())
        if is_created_again:
            await commit(groups, 6)
            assert await committed_offset(groups) == 6
        else:
            (host,) = groups.coordinator.hosts()
            assert host.shard._offsets.count() == 0, "deleted for good"
        groups.close()

    play(tmp_path, story)


def test_offsets_of_a_deleted_topic_are_deleted_once_that_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic of the same name must not be read from the offsets of the former one."""
    monkeypatch.setattr(shards, "RELOAD_PAUSE_S", 0.001)
    monkeypatch.setattr(shards, "RELOAD_PAUSE_MAX_S", 0.01)

    async def story(shell: TransactionShell) -> None:
        groups = Groups(shell.env, shell.image, shell, shell.partitions, shell.settings)
        topic_id = shell.image.topics["t"].topic_id
        groups._names[topic_id] = "t"
        await groups.leader_of("readers")
        await shell.until(lambda: groups.coordinator.hosts())
        await commit(groups, 5)
        attempts = []
        real = Partition.append

        def refuse(partition: Partition, *arguments: Any, **options: Any) -> Any:
            if partition.name.topic == "__consumer_offsets":
                attempts.append(partition)
                raise StorageError("no space left", errno.ENOSPC)
            return real(partition, *arguments, **options)

        with monkeypatch.context() as disk:
            disk.setattr(Partition, "append", refuse)
            groups.follow([RemoveTopicRecord(topic_id)])
            await shell.until(lambda: len(attempts) >= 3)
        await shell.until(lambda: groups.coordinator.hosts())
        host = groups.coordinator.hosts()[0]
        await shell.until(lambda: host.partition.log.end_offset == 2)
        assert len(attempts) < 20, "each time after a longer pause"
        groups.close()
        # As the next coordinator finds it.
        groups = Groups(shell.env, shell.image, shell, shell.partitions, shell.settings)
        await groups.leader_of("readers")
        await shell.until(lambda: groups.coordinator.hosts())
        assert await committed_offset(groups) == -1
        groups.close()

    play(tmp_path, story)


async def committed_offset(groups: Groups) -> int:
    request = OffsetFetchRequestGroup("readers", topics=[OffsetFetchRequestTopics("t", partition_indexes=[0])])
    found = await groups.read("readers", lambda shard: shard.offset_fetch_group(request, True, CALLER))
    offset: int = found.topics[0].partitions[0].committed_offset
    return offset
