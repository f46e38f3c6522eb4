"""Members of consumer groups: they keep their session, read what they are assigned, and commit how far they are.

`Member` is what members of both protocols have in common, `GroupMember` speaks the consumer protocol (KIP-848). A
`MemberSlot` is a place in a group that always has a member in it: members vanish without a word, and others come.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

from penstock.model.errors import ErrorCode
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from sim.consumer import PAUSE_S, Consumer
from sim.wire import BACKOFF_S, REQUEST_TIMEOUT_S, Cluster, Failed
from support.history import History, Operation

HEARTBEAT_S = 0.5
# Long enough that no member is expelled for being slow to revoke partitions: only silence ends a membership.
REBALANCE_TIMEOUT_MS = 60_000
LOST_MEMBERSHIP = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION})
# It is a matter of time: we are still a member.
STALE = frozenset({ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.REBALANCE_IN_PROGRESS})


class Member:
    """One member. `stop` makes it commit and end; `committed_at_end` asks how far its group is."""

    def __init__(self, name: str, group: str, reader: Consumer, session_ms: int) -> None:
        self.name = name
        self._cluster: Cluster = reader.cluster
        self._history: History = reader.history
        self._group = group
        self._topic = reader.topic
        self._reader = reader
        self._session_ms = session_ms
        self._member_id = ""
        # The epoch or generation that we are in; we are no member while it is 0.
        self._epoch = 0
        self._coordinator: tuple[str, int] | None = None
        # When we sent the last request of which we know that it kept our session.
        self._alive_s = -math.inf
        self._kept_by: tuple[str, int] | None = None
        self._committed: dict[int, int] = {}
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self.is_done = False

    @property
    def owned(self) -> list[int]:
        """The partitions that it reads."""
        return list(self._reader.positions)

    def stop(self) -> None:
        """Commit and end."""
        self._stopping = True

    def vanish(self) -> None:
        """The process is gone."""
        for task in self._tasks:
            task.cancel()

    def start(self, loop: Any) -> None:
        """Be a member until told to stop."""
        self._tasks = [loop.create_task(self.run()), loop.create_task(self.keep_membership())]

    async def run(self) -> None:
        """Read and commit until told to stop."""
        loop = asyncio.get_running_loop()
        next_commit = loop.time() + 1
        while not self._stopping:
            await self._reader.poll()
            await asyncio.sleep(PAUSE_S)
            await self.settle()
            if loop.time() >= next_commit:
                await self._commit()
                next_commit = loop.time() + 0.5 + self._cluster.random.random()
        await self._commit()
        self._tasks[1].cancel()
        self.is_done = True

    async def keep_membership(self) -> None:
        """Join, and stay in the group."""
        raise NotImplementedError

    async def settle(self) -> None:
        """Something between two polls: take or give back partitions."""

    async def _ask(self, request: Any, timeout_s: float = REQUEST_TIMEOUT_S) -> Any:
        """Ask the coordinator; raises Failed, after which it is looked for again."""
        if self._coordinator is None:
            found = await self._cluster.call(
                self._cluster.some_address(), FindCoordinatorRequest(key_type=0, coordinator_keys=[self._group])
            )
            coordinator = found.coordinators[0]
            if coordinator.error_code:
                raise Failed(ErrorCode(coordinator.error_code).name, maybe_done=False)
            self._coordinator = coordinator.host, coordinator.port
        try:
            return await self._cluster.call(self._coordinator, request, timeout_s)
        except Failed:
            self._coordinator = None
            raise

    async def _keep_session(self, request: Any, allowed: frozenset[ErrorCode] = frozenset()) -> Any:
        """Send a heartbeat of whatever kind; raises Failed, and forgets the membership where it is over."""
        sent_s = asyncio.get_running_loop().time()
        response = await self._ask(request)
        code = response.error_code
        if code == ErrorCode.NONE:
            self._alive_s = sent_s
            self._kept_by = self._coordinator
        elif code in LOST_MEMBERSHIP:
            self._expelled(code)
            raise Failed(ErrorCode(code).name, code)
        elif code not in allowed:
            self._coordinator = None
            raise Failed(ErrorCode(code).name, code)
        return response

    def _expelled(self, code: int) -> None:
        """The coordinator does not know us any more, for which there is a reason only where we were silent.

        Another one may have answered us before, not knowing that it was one no longer.
        """
        silent_s = asyncio.get_running_loop().time() - self._alive_s
        was_heard = self._coordinator == self._kept_by
        if code == ErrorCode.UNKNOWN_MEMBER_ID and was_heard and silent_s * 1000 < self._session_ms:
            self._history.notice(
                "expelled-early",
                f"{self.name} of {self._group} was silent for {silent_s:.3f} s of {self._session_ms / 1000:.1f} s",
            )
        self._forget()

    def _forget(self) -> None:
        """We are no member any more: what we own is another member's."""
        self._epoch = 0
        self._alive_s = -math.inf
        self._committed.clear()
        for partition in list(self._reader.positions):
            self._reader.unassign(partition)

    @property
    def _is_member(self) -> bool:
        return self._epoch > 0

    @property
    def _reads_as(self) -> tuple[str | None, int]:
        """The member and epoch that we name when we ask for committed offsets."""
        return None, -1

    async def _fetch_committed(self, partition: int) -> int | None:
        operation = self._history.fetch_committed(self.name, self._group, f"{self._topic}-{partition}")
        topics = [OffsetFetchRequestTopics(self._topic, partition_indexes=[partition])]
        return await self._read_committed(operation, OffsetFetchRequestGroup(self._group, *self._reads_as, topics))

    async def _read_committed(self, operation: Operation, wanted: OffsetFetchRequestGroup) -> int | None:
        try:
            response = await self._ask(OffsetFetchRequest(groups=[wanted]))
        except Failed as failed:
            self._history.fail(operation, str(failed))
            raise
        group = response.groups[0]
        answer = group.topics[0].partitions[0] if group.topics else None
        code = group.error_code or (answer.error_code if answer is not None else ErrorCode.UNKNOWN_SERVER_ERROR)
        if code or answer is None:
            self._history.fail(operation, ErrorCode(code).name)
            if code in LOST_MEMBERSHIP:
                if wanted.member_epoch == self._epoch:
                    self._expelled(code)
            elif code not in STALE:
                self._coordinator = None
            raise Failed(ErrorCode(code).name, code)
        offset: int | None = answer.committed_offset if answer.committed_offset >= 0 else None
        self._history.ok(operation, offset)
        return offset

    async def committed_at_end(self, partition: int) -> None:
        """Query how far the group is, as a client outside it."""
        while True:
            operation = self._history.fetch_committed(self.name, self._group, f"{self._topic}-{partition}")
            wanted = OffsetFetchRequestGroup(
                self._group, topics=[OffsetFetchRequestTopics(self._topic, partition_indexes=[partition])]
            )
            try:
                await self._read_committed(operation, wanted)
            except Failed:
                await asyncio.sleep(BACKOFF_S)
                continue
            return

    async def _commit(self) -> None:
        """Commit once how far we have read, where that is news."""
        news = {
            partition: offset
            for partition, offset in self._reader.positions.items()
            if offset and self._committed.get(partition) != offset
        }
        if not news or not self._is_member:
            return
        operations = {
            partition: self._history.commit(self.name, self._group, f"{self._topic}-{partition}", offset)
            for partition, offset in news.items()
        }
        topic = OffsetCommitRequestTopic(
            self._topic, partitions=[OffsetCommitRequestPartition(*item) for item in news.items()]
        )
        try:
            response = await self._ask(OffsetCommitRequest(self._group, self._epoch, self._member_id, topics=[topic]))
        except Failed as failed:
            for operation in operations.values():
                self._history.unknown(operation, str(failed))
            return
        for answer in response.topics[0].partitions:
            operation, code = operations[answer.partition_index], answer.error_code
            if code == ErrorCode.NONE:
                self._history.ok(operation)
                self._committed[answer.partition_index] = operation.value
            elif code in LOST_MEMBERSHIP or code in STALE:
                self._history.fail(operation, ErrorCode(code).name)
            else:
                # A time-out tells nothing about whether the commit is in the log.
                self._history.unknown(operation, ErrorCode(code).name)
                self._coordinator = None


class GroupMember(Member):
    """A member of a group of the consumer protocol."""

    def __init__(self, name: str, group: str, reader: Consumer, session_ms: int) -> None:
        super().__init__(name, group, reader, session_ms)
        self._member_id = f"{name}-{self._cluster.random.getrandbits(64):x}"
        # The assignment that we were given, as far as we have not taken it yet.
        self._target: set[int] | None = None
        # Whether an answer got lost: the next request contains everything, and so does its response.
        self._says_all = True

    @property
    def _reads_as(self) -> tuple[str | None, int]:
        return self._member_id, self._epoch

    async def keep_membership(self) -> None:
        while True:
            try:
                await self._heartbeat()
            except Failed:
                await asyncio.sleep(BACKOFF_S)
            else:
                await asyncio.sleep(BACKOFF_S if self._target is not None else HEARTBEAT_S)

    async def _heartbeat(self) -> None:
        says_all, self._says_all = self._says_all or self._epoch == 0, True
        if self._topic not in self._cluster.topic_ids:
            await self._cluster.refresh([self._topic])
        topic_id = self._cluster.topic_ids.get(self._topic)
        if topic_id is None:
            raise Failed("the topic is not known yet", maybe_done=False)
        owned = sorted(self._reader.positions)
        response = await self._keep_session(
            ConsumerGroupHeartbeatRequest(
                group_id=self._group,
                member_id=self._member_id,
                member_epoch=self._epoch,
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if says_all else -1,
                subscribed_topic_names=[self._topic] if says_all else None,
                topic_partitions=[TopicPartitions(topic_id, owned)] if owned else [],
            )
        )
        self._says_all = False
        self._epoch = response.member_epoch
        if response.assignment is not None:
            self._target = {
                partition for topic in response.assignment.topic_partitions for partition in topic.partitions
            }

    def _forget(self) -> None:
        super()._forget()
        self._target = None

    async def settle(self) -> None:
        """Give back what is no longer ours, then take what is new from where the group is."""
        target = self._target
        if target is None:
            return
        owned = set(self._reader.positions)
        if owned - target:
            await self._commit()
        for partition in sorted(owned - target):
            self._reader.unassign(partition)
            self._committed.pop(partition, None)
        epoch = self._epoch
        for partition in sorted(target - owned):
            try:
                offset = await self._fetch_committed(partition)
            except Failed:
                await asyncio.sleep(BACKOFF_S)
                return
            if epoch == 0 or self._epoch == 0 or self._target is None or partition not in self._target:
                return
            self._reader.assign(partition, offset or 0)
        if self._target == target:
            self._target = None


class MemberSlot:
    """A place in a group. With a lifetime its members vanish, and others with other names take it."""

    def __init__(self, name: str, make: Callable[[str], Member], lifetime_s: float | None) -> None:
        self.name = name
        self._make = make
        self._lifetime_s = lifetime_s
        self._count = 0
        self._settled = False
        self.member = self._next()

    def _next(self) -> Member:
        self._count += 1
        return self._make(f"{self.name}.{self._count}")

    async def run(self) -> None:
        """Have members, one after the other."""
        loop = asyncio.get_running_loop()
        random = self.member._cluster.random
        self.member.start(loop)
        while self._lifetime_s is not None:
            await asyncio.sleep(random.expovariate(1 / self._lifetime_s))
            if self._settled:
                return
            self.member.vanish()
            self.member = self._next()
            self.member.start(loop)

    def settle(self) -> None:
        """The member that has the place keeps it."""
        self._settled = True
