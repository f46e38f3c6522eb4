"""Proposes changes of the in-sync replicas to the controller, for the partitions that this broker leads.

A follower that has caught up is proposed at once, one that lags at the next periodic check. One request is in flight at
a time, with all pending proposals. Until the controller's decision arrives, in its response or through the metadata
log, whichever is first, the leader counts every replica that the decision could include. So a proposal whose outcome is
unknown is sent again unchanged: if it was accepted, its partition epoch is outdated and the metadata log has the rest.
That includes the broker epochs of the followers as they were when it was made. A follower that registered again since
may have lost what it had, and only its former incarnation was found to be in sync: the controller refuses that one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

from penstock.core.backoff import pause_after
from penstock.core.metadata.image import PartitionState
from penstock.core.replica.leader import LAG_MS_MAX, LeaderState
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import Uuid
from penstock.runtime.env import Env
from penstock.runtime.keep_running import keep_running
from penstock.runtime.replication.leading import exclude, isr_to_propose
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    BrokerState,
)

LOOK_MS_MAX = 2_500
BACKOFF_FIRST_MS = 50
BACKOFF_MAX_MS = 1_000
PARTITIONS_PER_TURN = 512
PARTITIONS_PER_REQUEST_MAX = 10_000
RECOVERED, RECOVERING = 0, 1

# The partition has changed since the proposal was made; the metadata log has its state.
OVERTAKEN = frozenset(
    (
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)
# The controller rejected the proposal.
REFUSED = frozenset((ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INVALID_REQUEST))

logger = logging.getLogger("penstock.replication")

Key = tuple[Uuid, int]


class Proposal(NamedTuple):
    """The proposed in-sync replicas, and the state of the partition that they were proposed for."""

    partition: Partition
    leading: LeaderState
    partition_epoch: int
    # The incarnations that were found to be in sync.
    incarnations: tuple[tuple[int, int], ...]

    @property
    def in_sync_replicas(self) -> frozenset[int]:
        """The replicas without their broker epochs."""
        return frozenset(replica for replica, _ in self.incarnations)

    @property
    def is_current(self) -> bool:
        """Whether the partition has not changed since."""
        return self.partition.leading is self.leading and self.partition.partition_epoch == self.partition_epoch


class IsrManager:
    """Keeps the in-sync replicas of this broker's partitions up to date."""

    def __init__(
        self,
        env: Env,
        partitions: Partitions,
        ask_controller: Callable[[Any], Awaitable[Any]],
        broker_epoch: Callable[[], int],
        lag_ms_max: int = LAG_MS_MAX,
    ) -> None:
        self._env = env
        self._partitions = partitions
        self._ask = ask_controller
        self._broker_epoch = broker_epoch
        self._look_ms = max(1, min(lag_ms_max // 2, LOOK_MS_MAX))
        self._due: dict[Partition, None] = {}
        self._asked: dict[Key, Proposal] = {}
        self._wake = asyncio.Event()
        self._failures = 0

    def start(self) -> None:
        """Start checking and proposing."""
        self._partitions.on_leader(self._led)
        self._partitions.on_joinable(self.propose)
        for partition in self._partitions:
            if partition.is_leader:
                self._led(partition)
        keep_running(self._env, self._look_around, "in-sync replicas")
        keep_running(self._env, self._run, "propose in-sync replicas")

    def propose(self, partition: Partition) -> None:
        """A partition's in-sync replicas may have to change."""
        self._due[partition] = None
        self._wake.set()

    def _led(self, partition: Partition) -> None:
        if self._is_recovering(partition) or partition.must_confirm:
            self.propose(partition)

    async def _look_around(self) -> None:
        while True:
            await asyncio.sleep(self._look_ms / 1000)
            now_ms = self._env.monotonic_ms()
            for number, partition in enumerate(list(self._partitions)):
                if isr_to_propose(partition, now_ms) is not None:
                    self.propose(partition)
                if number % PARTITIONS_PER_TURN == PARTITIONS_PER_TURN - 1:
                    await asyncio.sleep(0)

    async def _run(self) -> None:
        while True:
            self._gather()
            if not self._asked:
                self._wake.clear()
                await self._wake.wait()
                continue
            try:
                response: AlterPartitionResponse = await self._ask(self._request())
                if response.error_code:
                    raise ApiError(ErrorCode(response.error_code))
            except (ApiError, OSError) as error:
                await self._back_off(error)
                continue
            if not self._take_all(response):
                await self._back_off(ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "some partitions must be retried"))
                continue
            self._failures = 0

    async def _back_off(self, error: Exception) -> None:
        self._failures += 1
        if self._failures in (1, 10):
            logger.info("in-sync replicas cannot be changed for now: %s", error)
        await asyncio.sleep(pause_after(self._failures, BACKOFF_FIRST_MS, BACKOFF_MAX_MS) / 1000)

    def _gather(self) -> None:
        """Drop outdated proposals, and make those that are due."""
        self._asked = {key: proposal for key, proposal in self._asked.items() if proposal.is_current}
        now_ms = self._env.monotonic_ms()
        while self._due and len(self._asked) < PARTITIONS_PER_REQUEST_MAX:
            partition = next(iter(self._due))
            del self._due[partition]
            leading = partition.leading
            if leading is None:
                continue
            wanted = isr_to_propose(partition, now_ms)
            if wanted is None and self._is_recovering(partition):
                wanted = leading.in_sync_replicas
            if wanted is None or self._must_sync_first(partition, leading, wanted):
                continue
            if wanted != leading.in_sync_replicas:
                leading.propose(wanted)
            key = partition.topic_id, partition.name.partition
            incarnations = leading.incarnations(wanted, self._broker_epoch())
            self._asked[key] = Proposal(partition, leading, partition.partition_epoch, incarnations)

    def _must_sync_first(self, partition: Partition, leading: LeaderState, wanted: frozenset[int]) -> bool:
        """Whether this broker would be the only in-sync replica, and has not synced everything to disk yet.

        Once the controller has accepted such a proposal no other replica is eligible. It is made when the sync is done.
        """
        if len(wanted) > 1 or not leading.has_followers:
            return False
        durable = partition.sync.durable(leading.acknowledged_offset)
        if durable.done():
            return False
        durable.add_done_callback(lambda done: self.propose(partition) if done.exception() is None else None)
        return True

    def _is_recovering(self, partition: Partition) -> bool:
        known = self._partitions.state_of("", partition.topic_id, partition.name.partition, by_id=True)
        return known is not None and known.leader_recovery_state == RECOVERING

    def _request(self) -> AlterPartitionRequest:
        topics: dict[Uuid, list[AlterPartitionRequestPartitionData]] = {}
        for (topic_id, index), proposal in self._asked.items():
            row = AlterPartitionRequestPartitionData(
                index,
                proposal.leading.leader_epoch,
                new_isr_with_epochs=[BrokerState(*one) for one in proposal.incarnations],
                leader_recovery_state=RECOVERED,
                partition_epoch=proposal.partition_epoch,
            )
            topics.setdefault(topic_id, []).append(row)
        rows = [AlterPartitionRequestTopicData(topic_id, found) for topic_id, found in topics.items()]
        return AlterPartitionRequest(self._partitions.node_id, self._broker_epoch(), rows)

    def _take_all(self, response: AlterPartitionResponse) -> bool:
        """Act on the controller's response; returns whether all proposals were decided."""
        for topic in response.topics:
            for row in topic.partitions:
                proposal = self._asked.get((topic.topic_id, row.partition_index))
                if proposal is not None and self._take(proposal, row):
                    del self._asked[topic.topic_id, row.partition_index]
        return not self._asked

    def _take(self, proposal: Proposal, row: AlterPartitionResponsePartitionData) -> bool:
        partition = proposal.partition
        if row.error_code == ErrorCode.NONE:
            self._settle(partition, row)
            return True
        logger.info(
            "%s: in-sync replicas %s were not accepted: error %d",
            partition.name,
            sorted(proposal.in_sync_replicas),
            row.error_code,
        )
        if row.error_code in OVERTAKEN:
            return True
        if row.error_code in REFUSED:
            if proposal.is_current:
                proposal.leading.refused()
                self._exclude(partition, proposal.in_sync_replicas - proposal.leading.in_sync_replicas)
            return True
        return False

    def _exclude(self, partition: Partition, replicas: Iterable[int]) -> None:
        for replica in replicas:
            exclude(partition, replica)

    def _settle(self, partition: Partition, row: AlterPartitionResponsePartitionData) -> None:
        leading = partition.leading
        if leading is None:
            return
        known = PartitionState(
            replicas=partition.replicas,
            in_sync_replicas=tuple(row.isr),
            leader=row.leader_id,
            leader_epoch=row.leader_epoch,
            partition_epoch=row.partition_epoch,
            # The response does not contain them. They depend on what min.insync.replicas is for the controller, which
            # may be newer than ours: until the metadata log has the change, any replica that could be one counts.
            eligible_leader_replicas=tuple((leading.eligible_replicas | leading.in_sync_replicas).difference(row.isr)),
            removing_replicas=tuple(leading.leaving_replicas),
        )
        if row.leader_id == self._partitions.node_id and row.partition_epoch > partition.partition_epoch:
            logger.info("%s: in-sync replicas are %s", partition.name, list(row.isr))
            partition.settle(known, self._env.monotonic_ms())
