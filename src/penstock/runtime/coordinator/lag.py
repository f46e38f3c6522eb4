"""The lag of groups, from what this broker has in memory and in its logs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.core.group.offsets.lag import LagStatus, judge, worst
from penstock.core.group.offsets.offsets import Commit, PartitionProgress
from penstock.core.group.shard import GroupShard
from penstock.model.errors import ApiError, ProtocolError
from penstock.runtime.env import Env
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.wire.frame import decode_versioned
from penstock.wire.messages.consumer_protocol import ConsumerProtocolAssignment
from penstock.wire.messages.describe_lag import LagGroup, LagPartition
from penstock.wire.records import read_header

HEADER_BYTES = 128
UNKNOWN_MS = -1


class Owner(NamedTuple):
    """The member that reads a partition."""

    member_id: str
    client_id: str
    client_host: str


class LagView:
    """Measures groups against the ends of the logs they read."""

    def __init__(self, env: Env, partitions: Partitions) -> None:
        self._env = env
        self._partitions = partitions

    def measure(self, shard: GroupShard, group_id: str, is_shown: Callable[[str], bool] = lambda _: True) -> LagGroup:
        """One group with the partitions of all topics that are shown."""
        now_ms = self._env.now_ms()
        owners = _owners(shard, group_id)
        rows = []
        statuses = []
        for name, progress in sorted(shard.committed(group_id).items()):
            partition = self._partitions.get(*name)
            if partition is None or not is_shown(partition.name.topic):
                continue
            row, status = self._row(partition, progress, now_ms)
            owner = owners.get(name)
            if owner is not None:
                row = row._replace(member_id=owner.member_id, client_id=owner.client_id, client_host=owner.client_host)
            rows.append(row)
            statuses.append(status)
        return LagGroup(
            group_id,
            state=worst(statuses).name,
            lag=sum(row.lag for row in rows),
            lag_ms=max((row.lag_ms for row in rows), default=0),
            partitions=rows,
        )

    def _row(self, partition: Partition, progress: PartitionProgress, now_ms: int) -> tuple[LagPartition, LagStatus]:
        committed = progress.committed
        end = partition.high_watermark
        # Clients may commit any number, even the most negative one.
        lag = max(0, end - max(0, committed.offset))
        commits: Sequence[Commit] = progress.history or (Commit(committed.offset, committed.commit_timestamp_ms),)
        status = judge(commits, self._lag_at(partition, commits[0], end), lag, now_ms)
        row = LagPartition(
            topic=partition.name.topic,
            partition=partition.name.partition,
            committed_offset=committed.offset,
            end_offset=end,
            lag=lag,
            lag_ms=self._age_ms(partition, committed.offset, now_ms) if lag else 0,
            status=status.name,
            committed_ms=committed.commit_timestamp_ms,
        )
        return row, status

    def _lag_at(self, partition: Partition, commit: Commit, end: int) -> int:
        """The lag of a commit when it was made: the log knows where it ended then."""
        try:
            later = partition.log.offset_for_timestamp(commit.timestamp_ms)
        except ApiError:
            later = None
        return max(0, (later.offset if later is not None else end) - commit.offset)

    def _age_ms(self, partition: Partition, offset: int, now_ms: int) -> int:
        """How long ago the first unread record was appended."""
        log = partition.log
        try:
            data = log.read(max(offset, log.local_start_offset), HEADER_BYTES, minimum_one_batch=True)
            if data.file is None:
                return UNKNOWN_MS
            header = read_header(data.file.read(data.position, HEADER_BYTES))
        except ApiError:
            return UNKNOWN_MS
        return max(0, now_ms - header.base_timestamp) if header.base_timestamp >= 0 else UNKNOWN_MS


def _owners(shard: GroupShard, group_id: str) -> dict[tuple[str, int], Owner]:
    """Which member reads which partition of a group, as far as the assignments show."""
    try:
        described = shard.consumer.describe(group_id)
    except ApiError:
        return _classic_owners(shard, group_id)
    return {
        (topic.topic_name, partition): Owner(member.member_id, member.client_id, member.client_host)
        for member in described.members
        for topic in member.assignment.topic_partitions
        for partition in topic.partitions
    }


def _classic_owners(shard: GroupShard, group_id: str) -> dict[tuple[str, int], Owner]:
    owners: dict[tuple[str, int], Owner] = {}
    try:
        described = shard.describe_group(group_id)
    except ApiError:
        return owners
    for member in described.members:
        if described.protocol_type != "consumer" or not member.member_assignment:
            continue
        try:
            assignment: ConsumerProtocolAssignment = decode_versioned(
                ConsumerProtocolAssignment, member.member_assignment
            )
        except ProtocolError:
            # The members' metadata may be in any format.
            continue
        for topic in assignment.assigned_partitions:
            for partition in topic.partitions:
                owners[topic.topic, partition] = Owner(member.member_id, member.client_id, member.client_host)
    return owners
