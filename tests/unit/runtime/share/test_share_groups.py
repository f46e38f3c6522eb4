"""Share groups between the group's coordinator and the keeper of their state, with one that fails when told to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.core.contract import Caller
from penstock.core.group.share.partitions import NewState
from penstock.core.metadata.topics import NewTopic
from penstock.core.share.state import NO_OFFSET
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition, Uuid
from penstock.runtime.brokers import Brokers
from penstock.runtime.coordinator.groups import Groups
from penstock.runtime.peer import PeerLost
from penstock.runtime.share.end_offsets import EndOffsets
from penstock.runtime.share.persister import Persister, Summary
from penstock.runtime.share.share_groups import ShareGroupCoordinator
from penstock.wire.messages import alter_share_group_offsets as altering
from penstock.wire.messages import delete_share_group_offsets as deleting
from penstock.wire.messages import describe_share_group_offsets as describing
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from support.worlds.transaction_shell import TransactionShell, play

GROUP = "readers"
CALLER = Caller("client", "/127.0.0.1", 1)
END = 100


class FakePersister:
    """Keeps (state epoch, start offset, finished records) by partition; fails for partitions in `failing`."""

    def __init__(self) -> None:
        self.kept: dict[tuple[Uuid, int], tuple[int, int, int]] = {}
        self.failing: set[int] = set()
        self.calls = 0
        # Requests to delete arrive once this is set.
        self.may_delete = asyncio.Event()
        self.may_delete.set()

    async def _work(self, partition: int) -> None:
        self.calls += 1
        await asyncio.sleep(0)
        if partition in self.failing:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "it fails")

    async def initialize(self, _group: str, topic_id: Uuid, partition: int, state_epoch: int, start: int) -> None:
        await self._work(partition)
        if self.kept.get((topic_id, partition), (0, 0, 0))[0] > state_epoch:
            raise ApiError(ErrorCode.FENCED_STATE_EPOCH, "a later one has begun")
        self.kept[topic_id, partition] = (state_epoch, start, 0)

    async def read_summary(self, _group: str, topic_id: Uuid, partition: int) -> Summary:
        await self._work(partition)
        epoch, start, finished = self.kept.get((topic_id, partition), (0, NO_OFFSET, 0))
        return Summary(epoch, 3, start, finished)

    async def delete(self, _group: str, topic_id: Uuid, partition: int, state_epoch: int) -> None:
        await self.may_delete.wait()
        await self._work(partition)
        if self.kept.get((topic_id, partition), (0, 0, 0))[0] > state_epoch:
            raise ApiError(ErrorCode.FENCED_STATE_EPOCH, "it has begun anew")
        self.kept.pop((topic_id, partition), None)


class FixedEnds:
    """Every partition ends at the same offset, and some have no leader."""

    def __init__(self) -> None:
        self.leaderless: set[int] = set()

    async def of(self, names: Iterable[TopicPartition]) -> Mapping[TopicPartition, int | ErrorCode]:
        return {name: ErrorCode.LEADER_NOT_AVAILABLE if name.partition in self.leaderless else END for name in names}


class Desk:
    """The share groups of one broker, and what they stand on."""

    def __init__(self, shell: TransactionShell, groups: Groups) -> None:
        self.shell = shell
        self.groups = groups
        self.persister = FakePersister()
        self.ends = FixedEnds()
        self.share = ShareGroupCoordinator(
            shell.env, shell.image, groups, cast(Persister, self.persister), cast(EndOffsets, self.ends)
        )

    async def beat(self, epoch: int = 0) -> ShareGroupHeartbeatResponse:
        names = None if epoch else ["t"]
        return await self.share.heartbeat(ShareGroupHeartbeatRequest(GROUP, "a", epoch, None, names), CALLER)

    async def joined(self) -> int:
        """The epoch of a member that has both partitions."""
        epoch = (await self.beat()).member_epoch
        while True:
            response = await self.beat(epoch)
            epoch = response.member_epoch
            if response.assignment is not None and response.assignment.topic_partitions:
                return epoch
            await asyncio.sleep(0.001)

    async def alter(self, *offsets: int) -> Any:
        rows = [altering.AlterShareGroupOffsetsRequestPartition(*pair) for pair in enumerate(offsets)]
        topic = altering.AlterShareGroupOffsetsRequestTopic("t", rows)
        response = await self.share.alter_offsets(altering.AlterShareGroupOffsetsRequest(GROUP, [topic]))
        return [row.error_code for row in response.responses[0].partitions]


def tell(path: Path, story: Callable[[Desk], Awaitable[None]]) -> None:
    async def begin(shell: TransactionShell) -> None:
        groups = Groups(shell.env, shell.image, shell, shell.partitions, shell.settings)
        await shell.create_topics([NewTopic("t", 2, 1)])
        await groups.leader_of(GROUP)
        await shell.until(lambda: groups.coordinator.hosts())
        await story(Desk(shell, groups))
        groups.close()

    play(path, begin)


def test_members_get_partitions_once_they_have_state(tmp_path: Path) -> None:
    async def story(desk: Desk) -> None:
        first = await desk.beat()
        assert first.assignment is not None
        assert not first.assignment.topic_partitions
        await desk.joined()
        assert [state[:2] for state in desk.persister.kept.values()] == [(2, NO_OFFSET)] * 2
        assert desk.persister.calls == 2

    tell(tmp_path, story)


def test_what_cannot_be_initialized_is_tried_again(tmp_path: Path) -> None:
    async def story(desk: Desk) -> None:
        desk.persister.failing = {1}
        epoch = await desk.joined()
        desk.persister.failing = set()
        for _ in range(1000):
            response = await desk.beat(epoch)
            epoch = response.member_epoch
            if response.assignment is not None:
                assert [list(row.partitions) for row in response.assignment.topic_partitions] == [[0, 1]]
                return
            await asyncio.sleep(0.001)
        raise AssertionError("the second partition was not tried again")

    tell(tmp_path, story)


def test_offsets_with_lag(tmp_path: Path) -> None:
    async def story(desk: Desk) -> None:
        assert await desk.alter(40, 10, 1) == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        (first, second) = desk.persister.kept
        desk.persister.kept[second] = (0, 10, 15)
        (topic,) = await desk.share.describe_all_offsets(GROUP)
        assert (topic.topic_name, topic.topic_id) == ("t", first[0])
        assert [(row.start_offset, row.leader_epoch, row.lag) for row in topic.partitions] == [(40, 3, 60), (10, 3, 75)]
        desk.ends.leaderless = {0}
        desk.persister.failing = {1}
        (topic,) = await desk.share.describe_all_offsets(GROUP)
        assert [row.error_code for row in topic.partitions] == [ErrorCode.LEADER_NOT_AVAILABLE, 0]
        assert [row.start_offset for row in topic.partitions][1] == NO_OFFSET
        wanted = [describing.DescribeShareGroupOffsetsRequestTopic(name, [1]) for name in ("t", "gone")]
        desk.persister.failing = set()
        rows = await desk.share.describe_offsets(GROUP, wanted)
        assert [(row.topic_name, row.partitions[0].start_offset, row.partitions[0].lag) for row in rows] == [
            ("t", 10, 75),
            ("gone", NO_OFFSET, -1),
        ]
        assert await desk.share.describe_all_offsets("nobody") == []
        calls = desk.persister.calls
        beyond = [describing.DescribeShareGroupOffsetsRequestTopic("t", [-1, 2, 1_000_000])]
        (topic,) = await desk.share.describe_offsets(GROUP, beyond)
        assert [row.start_offset for row in topic.partitions] == [NO_OFFSET] * 3
        assert desk.persister.calls == calls

    tell(tmp_path, story)


def test_each_change_of_offsets_has_a_state_epoch_of_its_own(tmp_path: Path) -> None:
    """A leader may have read the first one already, for a member that was removed and still fetches."""

    async def story(desk: Desk) -> None:
        epochs = []
        for offset in (40, 70):
            await desk.alter(offset)
            epochs += [epoch for epoch, start, _ in desk.persister.kept.values() if start == offset]
        assert len(epochs) == 2
        assert epochs[0] < epochs[1]
        group = await desk.groups.read(GROUP, lambda shard: shard.share.describe(GROUP))
        assert group.group_epoch == epochs[1]

    tell(tmp_path, story)


def test_state_that_begins_anew_is_not_deleted_by_an_earlier_request(tmp_path: Path) -> None:
    """A member joins while its group's offsets are being deleted."""

    async def story(desk: Desk) -> None:
        await desk.alter(1, 2)
        desk.persister.may_delete.clear()
        topics = [deleting.DeleteShareGroupOffsetsRequestTopic("t")]
        request = deleting.DeleteShareGroupOffsetsRequest(GROUP, topics)
        deletion = asyncio.ensure_future(desk.share.delete_offsets(request))
        await asyncio.sleep(0.01)
        await desk.joined()
        desk.persister.may_delete.set()
        (row,) = (await deletion).responses
        assert row.error_code == ErrorCode.FENCED_STATE_EPOCH
        assert [start for _, start, _ in desk.persister.kept.values()] == [NO_OFFSET] * 2

    tell(tmp_path, story)


def test_state_that_a_former_group_of_the_name_has_left_is_replaced(tmp_path: Path) -> None:
    """A request of its coordinator may have come late, after the group was deleted."""

    async def story(desk: Desk) -> None:
        topic_id = desk.shell.image.topics["t"].topic_id
        desk.persister.kept[topic_id, 0] = (9, 5, 0)
        assert await desk.alter(40, 50) == [0, 0]
        assert [start for _, start, _ in desk.persister.kept.values()] == [40, 50]
        desk.persister.kept[topic_id, 1] = (20, 5, 0)
        await desk.share.delete_offsets(
            deleting.DeleteShareGroupOffsetsRequest(GROUP, [deleting.DeleteShareGroupOffsetsRequestTopic("t")])
        )
        epoch = await desk.joined()
        assert epoch > 20
        assert {start for _, start, _ in desk.persister.kept.values()} == {NO_OFFSET}

    tell(tmp_path, story)


def test_an_earlier_change_of_offsets_that_comes_late_is_not_repeated(tmp_path: Path) -> None:
    async def story(desk: Desk) -> None:
        topic_id = desk.shell.image.topics["t"].topic_id
        await desk.alter(40)
        await desk.alter(70)
        kept = dict(desk.persister.kept)
        errors = await desk.share._initialize(GROUP, [NewState(topic_id, 0, 1, 40)])
        assert [error.code for error in errors.values()] == [ErrorCode.FENCED_STATE_EPOCH]
        assert desk.persister.kept == kept

    tell(tmp_path, story)


def test_what_is_initialized_too_late_is_not_the_groups(tmp_path: Path) -> None:
    """Its offsets were deleted, or its topic was, while the request was under way."""

    async def story(desk: Desk) -> None:
        topic_id = desk.shell.image.topics["t"].topic_id
        await desk.alter(40)
        await desk.share.delete_offsets(
            deleting.DeleteShareGroupOffsetsRequest(GROUP, [deleting.DeleteShareGroupOffsetsRequestTopic("t")])
        )
        await desk.groups.ask(
            GROUP, lambda shard, token, _: shard.share.initialized(GROUP, {topic_id: frozenset({0})}, {}, token)
        )
        assert await desk.share.describe_all_offsets(GROUP) == []

    tell(tmp_path, story)


def test_a_part_of_the_offsets_can_fail(tmp_path: Path) -> None:
    async def story(desk: Desk) -> None:
        desk.persister.failing = {1}
        assert await desk.alter(40, 10) == [0, ErrorCode.COORDINATOR_NOT_AVAILABLE]
        (topic,) = await desk.share.describe_all_offsets(GROUP)
        assert [row.partition_index for row in topic.partitions] == [0]

    tell(tmp_path, story)


def test_offsets_are_deleted_topic_by_topic(tmp_path: Path) -> None:
    async def story(desk: Desk) -> None:
        await desk.alter(1, 2)
        topics = [deleting.DeleteShareGroupOffsetsRequestTopic(name) for name in ("t", "gone")]
        request = deleting.DeleteShareGroupOffsetsRequest(GROUP, topics)
        desk.persister.failing = {1}
        failed, unknown = (await desk.share.delete_offsets(request)).responses
        assert (failed.topic_name, failed.error_code) == ("t", ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        desk.persister.failing = set()
        deleted, _ = (await desk.share.delete_offsets(request)).responses
        assert (deleted.topic_name, deleted.error_code, desk.persister.kept) == ("t", 0, {})
        again, _ = (await desk.share.delete_offsets(request)).responses
        assert again.error_message == "There is no offset information to delete."

    tell(tmp_path, story)


def test_a_group_loses_its_state_before_it_is_deleted(tmp_path: Path) -> None:
    async def story(desk: Desk) -> None:
        epoch = await desk.joined()
        with pytest.raises(ApiError) as raised:
            await desk.share.delete_state(GROUP)
        assert raised.value.code is ErrorCode.NON_EMPTY_GROUP
        with pytest.raises(ApiError):
            await desk.alter(1)
        assert len(desk.persister.kept) == 2
        assert epoch > 0
        assert (await desk.beat(-1)).error_code == 0
        desk.persister.failing = {0}
        with pytest.raises(ApiError, match="it fails"):
            await desk.share.delete_state(GROUP)
        desk.persister.failing = set()
        await desk.share.delete_state(GROUP)
        assert desk.persister.kept == {}
        await desk.share.delete_state("nobody")

    tell(tmp_path, story)


class LostPeer:
    def send(self, _message: Any, *, timeout_ms: int | None = None) -> asyncio.Future[Any]:  # noqa: ARG002
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.set_exception(PeerLost("gone"))
        return answer


def test_end_offsets_are_requested_from_leaders() -> None:
    async def itself(request: ListOffsetsRequest) -> ListOffsetsResponse:
        await asyncio.sleep(0)
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    topic.name,
                    [
                        ListOffsetsPartitionResponse(
                            row.partition_index, 3 if row.partition_index == 9 else 0, offset=7
                        )
                        for row in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    leaders = {("t", 0): 1, ("t", 9): 1, ("u", 0): 2, ("u", 1): -1}
    ends = EndOffsets(Brokers(1, lambda _: LostPeer(), itself), lambda *name: leaders.get(name))
    names = [TopicPartition(*name) for name in [*leaders, ("gone", 0)]]
    assert asyncio.run(ends.of(names)) == {
        ("t", 0): 7,
        ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("u", 0): ErrorCode.LEADER_NOT_AVAILABLE,
        ("u", 1): ErrorCode.LEADER_NOT_AVAILABLE,
        ("gone", 0): ErrorCode.LEADER_NOT_AVAILABLE,
    }
