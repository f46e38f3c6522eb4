"""What becomes of damaged replicas: another one leads, and they are replicated anew.

A read, a compaction, the opening of a log or the scrubber meets damage. The segment is read once more, as a whole; only
damage that is found again counts. Then, step by step, always by the committed metadata:

1. It is reported to the controller (in the reserved directory LOST, with `kept_records`: the replica can be read).
   Where enough others are in sync, the replica leaves them, and one of the others leads. Where too few are, it stays in
   sync, since it has all but what is damaged, and another one leads. Where there is none it keeps leading: it is the
   last copy.
2. Once it is neither in sync nor eligible, another one leads, and no later report of it is under way, nothing that was
   acknowledged depends on it any more.
   Its directory is renamed and kept, and it begins with an empty log.
3. That is reported to the controller (the replica's directory, without `kept_records`), which starts a new leader
   epoch, so that nothing the leader knew of its progress counts. It follows, and is in sync again when it has
   everything.

A replica that could not be opened because it is damaged is in LOST already, and is treated in the same way from step 2
on. One that is in LOST and becomes the only one that could be elected is announced in its directory again.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from penstock.core.metadata.image import LOST_DIRECTORY, PartitionState
from penstock.model.ids import NO_LEADER, TopicPartition, Uuid
from penstock.runtime.env import Env
from penstock.runtime.keep_running import keep_running
from penstock.runtime.logs.damage_search import at_once, find_damage
from penstock.runtime.replication.directory_assignments import DirectoryAssignments
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.storage.files import CorruptLogError, StorageError

# How often the next step for damaged replicas is checked, and how often the controller is queried about one.
LOOK_S = 0.5
REPORT_MS = 10_000
# How fast a log is read if it is not known where its damage is.
SEARCH_BYTES_PER_SECOND = 64 * 1024 * 1024

logger = logging.getLogger("penstock.replication")


async def _gently(size: int) -> None:
    """The pace of a search through a whole log."""
    await asyncio.sleep(size / SEARCH_BYTES_PER_SECOND)


class _Damaged:
    """A replica that is open and damaged."""

    __slots__ = ("damage", "explained", "reported_ms")

    def __init__(self, damage: CorruptLogError) -> None:
        self.damage = damage
        # When the controller was asked to take it out of service, on the monotonic clock.
        self.reported_ms: int | None = None
        # Whether it was logged why it stays.
        self.explained = False


class DamagedReplicas:
    """Sees to this broker's damaged replicas. `begun_anew` counts those that were replaced since the start."""

    def __init__(self, env: Env, partitions: Partitions, assignments: DirectoryAssignments) -> None:
        self._env = env
        self._partitions = partitions
        self._assignments = assignments
        self._damaged: dict[Partition, _Damaged] = {}
        # When a log was last searched for damage that was suspected there; a client may meet it with every read.
        self._searched_ms: dict[Partition, int] = {}
        self._wake = asyncio.Event()
        self.begun_anew = 0

    def __len__(self) -> int:
        return len(self._damaged) + len(self._partitions.damaged_unopened)

    def start(self) -> None:
        """Start seeing to replicas, those included that were found damaged when they were opened."""
        self._partitions.on_damage(self.suspect)
        self._partitions.on_removed(self._forget)
        self._partitions.on_unopened(lambda *_: self._wake.set())
        for partition in list(self._partitions):
            for damage in partition.log.recovery.damaged[:1]:
                self.suspect(partition, damage)
        self._wake.set()
        keep_running(self._env, self._run, "damaged replicas")

    def suspect(self, partition: Partition, damage: CorruptLogError) -> None:
        """A replica seems to be damaged: look again, and act on it."""
        now_ms = self._env.monotonic_ms()
        searched_ms = self._searched_ms.get(partition)
        if partition in self._damaged or (searched_ms is not None and now_ms - searched_ms < REPORT_MS):
            return
        self._searched_ms[partition] = now_ms
        self._env.spawn(self._search(partition, damage), f"search {partition.name} for damage")

    async def _search(self, partition: Partition, suspected: CorruptLogError) -> None:
        log = partition.log
        try:
            segments = log.segments_to_check(suspected.path)
            pace = at_once if len(segments) == 1 else _gently
            for wanted in segments:
                damage = await find_damage(self._env, log, wanted, pace)
                if damage is not None:
                    break
            else:
                return
        except StorageError as error:
            logger.error("%s cannot be searched for damage: %s", partition.name, error)
            self._partitions.check_disk(error)
            return
        if self._partitions.get(*partition.name) is partition and partition.log is log:
            logger.error("%s: %s", partition.name, damage)
            self._damaged[partition] = _Damaged(damage)
            self._wake.set()

    def _forget(self, partition: Partition) -> None:
        self._damaged.pop(partition, None)
        self._searched_ms.pop(partition, None)

    async def _run(self) -> None:
        while True:
            while len(self):
                for partition, damaged in list(self._damaged.items()):
                    self._look_at(partition, damaged)
                for name, topic_id, damage in self._partitions.damaged_unopened:
                    self._begin_anew_if_possible(name, topic_id, damage)
                await asyncio.sleep(LOOK_S)
            await self._wake.wait()
            self._wake.clear()

    def _look_at(self, partition: Partition, damaged: _Damaged) -> None:
        """Take the next step with a replica that is open."""
        home = self._partitions.home(partition)
        if partition.is_truncating or home.failure is not None:
            return
        if self._begin_anew_if_possible(partition.name, partition.topic_id, damaged.damage):
            return
        if self._assignments.is_pending(partition.topic_id, partition.name.partition):
            # What the controller has of it now is unknown.
            return
        state, node_id = self._state(partition.topic_id, partition.name.partition), self._partitions.node_id
        now_ms = self._env.monotonic_ms()
        if state is None or (damaged.reported_ms is not None and now_ms - damaged.reported_ms < REPORT_MS):
            return
        electable = *state.in_sync_replicas, *state.eligible_leader_replicas, *state.last_known_leader_replicas
        if state.directory(node_id) != LOST_DIRECTORY:
            if set(state.in_sync_replicas) <= {node_id} or node_id in state.eligible_leader_replicas:
                self._explain(partition, damaged)
                return
            damaged.reported_ms = now_ms
            self._assignments.report_damaged(partition).add_done_callback(partial(self._reported, partition))
        elif state.leader == NO_LEADER and node_id in electable and self._is_lost(partition.name, partition.topic_id):
            damaged.reported_ms = now_ms
            logger.error("%s: the others are gone, so that the damaged replica is to lead again", partition.name)
            self._assignments.assign(partition, home, kept_records=True)

    def _reported(self, partition: Partition, done: asyncio.Future[bool]) -> None:
        damaged = self._damaged.get(partition)
        if damaged is not None and not done.cancelled() and not done.result():
            self._explain(partition, damaged)

    def _explain(self, partition: Partition, damaged: _Damaged) -> None:
        if damaged.explained:
            return
        damaged.explained = True
        logger.error(
            "%s stays in service although it is damaged, as too few other replicas are in sync to do without it: %s. "
            "Reads of the damaged batch fail with CORRUPT_MESSAGE, all others are served. Bring its other replicas "
            "back, or give it more (penstock topic, kafka-reassign-partitions): once they are in sync it is "
            "replicated anew. If there are none, restore the file from a copy of the disk",
            partition.name,
            damaged.damage,
        )

    def _begin_anew_if_possible(self, name: TopicPartition, topic_id: Uuid, damage: CorruptLogError) -> bool:
        state, node_id = self._state(topic_id, name.partition), self._partitions.node_id
        if (
            state is None
            or node_id not in state.replicas
            or state.directory(node_id) != LOST_DIRECTORY
            # Nor may it be about to be used again with its records, by a report that is not in the metadata yet.
            or not self._is_lost(name, topic_id)
            or node_id in (*state.in_sync_replicas, *state.eligible_leader_replicas)
            or state.leader in (NO_LEADER, node_id)
            or self._partitions.has_no_room_for_another(name)
        ):
            return False
        try:
            aside = self._partitions.begin_anew(name, topic_id, damage)
        except StorageError as error:
            logger.error("%s is damaged and cannot begin anew yet: %s", name, error)
            return False
        self.begun_anew += 1
        logger.warning("%s is replicated anew, as it is damaged; what it had is kept in %s", name, aside)
        return True

    def _is_lost(self, name: TopicPartition, topic_id: Uuid) -> bool:
        """Whether the controller has recorded that a replica is out of service, and nothing later is under way."""
        return self._assignments.is_announced(topic_id, name.partition, LOST_DIRECTORY)

    def _state(self, topic_id: Uuid, index: int) -> PartitionState | None:
        return self._partitions.state_of("", topic_id, index, by_id=True)
