"""A member of a group of the classic protocol: it joins, one of the members assigns, and everybody heartbeats."""

from __future__ import annotations

import asyncio
import math

from penstock.core.group.consumer.protocol import read_assignment
from penstock.model.errors import ErrorCode
from penstock.wire.codec import encode
from penstock.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from sim.consumer import Consumer
from sim.group import HEARTBEAT_S, LOST_MEMBERSHIP, REBALANCE_TIMEOUT_MS, Member
from sim.wire import BACKOFF_S, Failed

PROTOCOL_TYPE, PROTOCOL = "consumer", "range"
JOIN_TIMEOUT_S = 12.0
VERSION = b"\0\0"
REBALANCE = frozenset({ErrorCode.REBALANCE_IN_PROGRESS})


class ClassicMember(Member):
    """A member that gives back everything before it joins again."""

    def __init__(self, name: str, group: str, reader: Consumer, session_ms: int, partitions: int) -> None:
        super().__init__(name, group, reader, session_ms)
        self._partitions = partitions
        self._wants_join = True

    async def keep_membership(self) -> None:
        while True:
            try:
                if self._wants_join:
                    await self._join()
                elif (await self._heartbeat()).error_code:
                    await self._give_back()
            except Failed:
                await asyncio.sleep(BACKOFF_S)
            else:
                await asyncio.sleep(BACKOFF_S if self._wants_join else HEARTBEAT_S)

    def _forget(self) -> None:
        super()._forget()
        self._member_id = ""
        self._wants_join = True

    async def _heartbeat(self) -> HeartbeatResponse:
        response: HeartbeatResponse = await self._keep_session(
            HeartbeatRequest(self._group, self._epoch, self._member_id), REBALANCE
        )
        return response

    async def _give_back(self) -> None:
        """The group is about to be shared anew."""
        await self._commit()
        for partition in self.owned:
            self._reader.unassign(partition)
        self._committed.clear()
        self._wants_join = True

    async def _join(self) -> None:
        """Join and take what we get; a member that waits for the others is kept by its request, not by heartbeats."""
        self._alive_s = -math.inf
        self._epoch = 0
        subscription = VERSION + encode(ConsumerProtocolSubscription([self._topic]), 0)
        request = JoinGroupRequest(
            self._group,
            self._session_ms,
            REBALANCE_TIMEOUT_MS,
            self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(PROTOCOL, subscription)],
        )
        joined: JoinGroupResponse = await self._ask(request, JOIN_TIMEOUT_S)
        code = joined.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            return
        self._check(code)
        self._member_id, self._epoch = joined.member_id, joined.generation_id
        assignments = self._assign(joined) if joined.leader == joined.member_id else []
        sent_s = asyncio.get_running_loop().time()
        synced = await self._ask(
            SyncGroupRequest(
                self._group,
                self._epoch,
                self._member_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=PROTOCOL,
                assignments=assignments,
            ),
            JOIN_TIMEOUT_S,
        )
        self._check(synced.error_code)
        self._alive_s = sent_s
        self._kept_by = self._coordinator
        await self._take(bytes(synced.assignment))

    def _check(self, code: int) -> None:
        if code == ErrorCode.NONE:
            return
        if code in LOST_MEMBERSHIP:
            self._forget()
        elif code != ErrorCode.REBALANCE_IN_PROGRESS:
            self._coordinator = None
        raise Failed(ErrorCode(code).name, code)

    def _assign(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        ids = sorted(member.member_id for member in joined.members)
        assignments = []
        for number, member_id in enumerate(ids):
            partitions = list(range(number, self._partitions, len(ids)))
            assignment = ConsumerProtocolAssignment([TopicPartition(self._topic, partitions)])
            assignments.append(SyncGroupRequestAssignment(member_id, VERSION + encode(assignment, 0)))
        return assignments

    async def _take(self, assignment: bytes) -> None:
        wanted = [number for row in read_assignment(assignment).assigned_partitions for number in row.partitions]
        epoch = self._epoch
        for partition in wanted:
            offset = await self._committed_offset(partition)
            if self._epoch != epoch:
                return
            self._reader.assign(partition, offset)
        self._wants_join = False

    async def _committed_offset(self, partition: int) -> int:
        """How far the group is; heartbeats go on while it is asked for."""
        while True:
            try:
                return await self._fetch_committed(partition) or 0
            except Failed:
                await asyncio.sleep(BACKOFF_S)
                if (await self._heartbeat()).error_code:
                    raise
