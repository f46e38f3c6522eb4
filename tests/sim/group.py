"""A member of a consumer group (KIP-848): it heartbeats, reads what it is assigned, and commits how far it is."""

from __future__ import annotations

import asyncio
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
from sim.wire import BACKOFF_S, Cluster, Failed
from support.history import History, Operation

HEARTBEAT_S = 0.5
REBALANCE_TIMEOUT_MS = 4_000
LOST_MEMBERSHIP = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})


class GroupMember:
    """One member. `stop` makes it leave; `committed_at_end` asks how far its group is."""

    def __init__(
        self, name: str, cluster: Cluster, history: History, group: str, topic: str, isolation_level: int = 0
    ) -> None:
        self.name = name
        self._cluster = cluster
        self._history = history
        self._group = group
        self._topic = topic
        self._reader = Consumer(name, cluster, history, topic, [], isolation_level)
        self._member_id = f"{name}-{cluster.random.getrandbits(64):x}"
        self._epoch = 0
        self._coordinator: tuple[str, int] | None = None
        # The assignment that we were given, as far as we have not taken it yet.
        self._target: set[int] | None = None
        self._committed: dict[int, int] = {}
        self._stopping = False
        self.is_done = False

    def stop(self) -> None:
        """Commit and leave."""
        self._stopping = True

    async def run(self) -> None:
        """Be a member until told to stop."""
        loop = asyncio.get_running_loop()
        heartbeats = loop.create_task(self._heartbeat_always())
        next_commit = loop.time() + 1
        while not self._stopping:
            await self._reader.poll()
            await asyncio.sleep(PAUSE_S)
            if self._target is not None:
                await self._reconcile()
            if loop.time() >= next_commit:
                await self._commit()
                next_commit = loop.time() + 0.5 + self._cluster.random.random()
        await self._commit()
        heartbeats.cancel()
        self.is_done = True

    # The coordinator.

    async def _ask(self, request: Any) -> Any:
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
            return await self._cluster.call(self._coordinator, request)
        except Failed:
            self._coordinator = None
            raise

    async def _heartbeat_always(self) -> None:
        while True:
            try:
                await self._heartbeat()
            except Failed:
                await asyncio.sleep(BACKOFF_S)
            else:
                await asyncio.sleep(BACKOFF_S if self._target is not None else HEARTBEAT_S)

    async def _heartbeat(self) -> None:
        joining = self._epoch == 0
        if self._topic not in self._cluster.topic_ids:
            await self._cluster.refresh([self._topic])
        topic_id = self._cluster.topic_ids.get(self._topic)
        if topic_id is None:
            raise Failed("the topic is not known yet", maybe_done=False)
        owned = sorted(self._reader.positions)
        response = await self._ask(
            ConsumerGroupHeartbeatRequest(
                group_id=self._group,
                member_id=self._member_id,
                member_epoch=self._epoch,
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if joining else -1,
                subscribed_topic_names=[self._topic] if joining else None,
                topic_partitions=[TopicPartitions(topic_id, owned)] if owned else [],
            )
        )
        code = response.error_code
        if code in LOST_MEMBERSHIP:
            self._forget()
            raise Failed(ErrorCode(code).name, code)
        if code:
            self._coordinator = None
            raise Failed(ErrorCode(code).name, code)
        self._epoch = response.member_epoch
        if response.assignment is not None:
            self._target = {
                partition for topic in response.assignment.topic_partitions for partition in topic.partitions
            }

    def _forget(self) -> None:
        """We are no member any more: what we own is somebody else's."""
        self._epoch = 0
        self._target = None
        self._committed.clear()
        for partition in list(self._reader.positions):
            self._reader.unassign(partition)

    async def _reconcile(self) -> None:
        """Give back what is no longer ours, then take what is new from where the group is."""
        target = self._target
        assert target is not None
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

    async def _fetch_committed(self, partition: int) -> int | None:
        operation = self._history.fetch_committed(self.name, self._group, f"{self._topic}-{partition}")
        wanted = OffsetFetchRequestGroup(
            self._group,
            self._member_id,
            self._epoch,
            [OffsetFetchRequestTopics(self._topic, partition_indexes=[partition])],
        )
        return await self._read_committed(operation, wanted)

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
                self._forget()
            elif code != ErrorCode.STALE_MEMBER_EPOCH:
                self._coordinator = None
            raise Failed(ErrorCode(code).name, code)
        offset: int | None = answer.committed_offset if answer.committed_offset >= 0 else None
        self._history.ok(operation, offset)
        return offset

    async def committed_at_end(self, partition: int) -> None:
        """Ask how far the group is, as somebody outside it."""
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

    # Committing.

    async def _commit(self) -> None:
        """Commit once how far we have read, where that is news."""
        news = {
            partition: offset
            for partition, offset in self._reader.positions.items()
            if offset and self._committed.get(partition) != offset
        }
        if not news or self._epoch <= 0:
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
            elif code in LOST_MEMBERSHIP or code == ErrorCode.STALE_MEMBER_EPOCH:
                self._history.fail(operation, ErrorCode(code).name)
            else:
                # A time-out tells nothing about whether the commit is in the log.
                self._history.unknown(operation, ErrorCode(code).name)
                self._coordinator = None
