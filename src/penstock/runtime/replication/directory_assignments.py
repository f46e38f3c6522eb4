"""Tells the controller in which data directory each replica of this broker is (KIP-858).

The controller moves leaderships away from a directory that failed, so it must know which replicas are in it. A broker
with several directories chooses one for a new replica itself, and reports it afterwards; a move to another directory is
reported before it happens. A replica that cannot be opened although its directory works, because its log is damaged,
is reported in the reserved directory LOST: it leaves the in-sync replicas, and others lead. So is one that was found
damaged later, unless it is the last copy. Reports are gathered while
a request is in flight, and repeated until they are answered.

The metadata here may lag behind the controller's answers, so what it has recorded is known from both: the last answer
counts until the metadata has it. A report contains the epoch of the partition as it is known here. The controller
refuses one that it gets late, or too early, where that matters; it is sent again with the epoch of then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Any, NamedTuple

from penstock.core.backoff import pause_after
from penstock.core.metadata.image import LOST_DIRECTORY, UNASSIGNED_DIRECTORY
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import Uuid
from penstock.runtime.env import Env
from penstock.runtime.keep_running import keep_running
from penstock.runtime.logs.directories import LogDirectory
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
    AssignReplicasToDirsResponse,
)

PER_REQUEST_MAX = 2_250
BACKOFF_FIRST_MS = 100
BACKOFF_MAX_MS = 10_000

logger = logging.getLogger("penstock.replication")

Key = tuple[Uuid, int]


class Report(NamedTuple):
    """Where a replica is. `kept_records`: it was there all the time, although it was announced elsewhere."""

    directory_id: Uuid
    kept_records: bool = False


class DirectoryAssignments:
    """Reports the directories of this broker's replicas. `ask_controller` calls the active controller."""

    def __init__(
        self,
        env: Env,
        partitions: Partitions,
        ask_controller: Callable[[Any], Awaitable[Any]],
        broker_epoch: Callable[[], int],
    ) -> None:
        self._env = env
        self._partitions = partitions
        self._ask = ask_controller
        self._broker_epoch = broker_epoch
        # What the controller is to be sent, and who waits for it.
        self._due: dict[Key, Report] = {}
        self._waiters: dict[Key, asyncio.Future[bool]] = {}
        self._wake = asyncio.Event()
        self._failures = 0
        # The reports of the request that is in flight.
        self._asked: dict[Key, Report] = {}
        # What the controller has recorded by its answers, where the metadata here did not have it yet.
        self._recorded: dict[Key, Uuid] = {}
        # Replicas that were compared with the metadata since they were opened; from then on moves tell of changes.
        self._seen: set[Key] = set()

    def start(self) -> None:
        """Report every replica that the controller has elsewhere, now and whenever one is opened."""
        self._partitions.on_change(self._opened)
        self._partitions.on_removed(self._forget)
        self._partitions.on_directory_failed(self._note_failed)
        self._partitions.on_unopened(self._note_unopened)
        for partition in self._partitions:
            self._opened(partition)
        self._partitions.report_unopened()
        keep_running(self._env, self._run, "assign replicas to directories")

    def assign(
        self, partition: Partition, directory: LogDirectory, *, kept_records: bool = False
    ) -> asyncio.Future[bool]:
        """Tell the controller that a replica is there; completes when it knows, with False if it refused.

        If the controller has it in a directory that failed, it has begun anew unless it `kept_records`.
        """
        return self._report_soon(partition, Report(directory.directory_id, kept_records))

    def report_damaged(self, partition: Partition) -> asyncio.Future[bool]:
        """Have the controller take a damaged replica out of service; completes with False if it is needed."""
        return self._report_soon(partition, Report(LOST_DIRECTORY, kept_records=True))

    def is_pending(self, topic_id: Uuid, index: int) -> bool:
        """Whether a report of a replica is not answered yet, so that it is unknown what the controller has."""
        return (topic_id, index) in self._due or (topic_id, index) in self._asked

    def is_announced(self, topic_id: Uuid, index: int, directory_id: Uuid) -> bool:
        """Whether the controller has recorded that a replica is there, and no later report is under way."""
        return not self.is_pending(topic_id, index) and self._assigned((topic_id, index)) == directory_id

    def _assigned(self, key: Key) -> Uuid | None:
        """The directory that the controller has recorded; None if this broker should not have the replica."""
        state = self._partitions.state_of("", *key, by_id=True)
        if state is None or self._partitions.node_id not in state.replicas:
            self._recorded.pop(key, None)
            return None
        assigned = state.directory(self._partitions.node_id)
        if self._recorded.get(key) == assigned:
            del self._recorded[key]
        return self._recorded.get(key, assigned)

    def _forget(self, partition: Partition) -> None:
        """What was to be reported of a replica does not hold for a later one of the same partition."""
        key = _key(partition)
        self._seen.discard(key)
        self._due.pop(key, None)
        self._recorded.pop(key, None)
        self._answer(key, False)

    def _report_soon(self, partition: Partition, report: Report) -> asyncio.Future[bool]:
        key = _key(partition)
        self._answer(key, False)
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiters[key] = waiter
        self._due[key] = report
        self._wake.set()
        return waiter

    def _opened(self, partition: Partition) -> None:
        key = _key(partition)
        if key not in self._seen:
            self._seen.add(key)
            pending = self._due.get(key) or self._asked.get(key)
            if pending is None:
                self._note(partition)
            else:
                # It may have been recorded already.
                kept_records = pending.directory_id == LOST_DIRECTORY and partition.name in self._partitions.whole
                self._due[key] = Report(self._partitions.home(partition).directory_id, kept_records)
                self._wake.set()

    def _note_unopened(self, topic_id: Uuid, index: int) -> None:
        key = topic_id, index
        assigned = self._assigned(key)
        if assigned is None or key in self._due:
            return
        # In any other directory the replica is offline already.
        working = {one.directory_id for one in self._partitions.directories if one.failure is None}
        if assigned in {*working, UNASSIGNED_DIRECTORY}:
            self._due[key] = Report(LOST_DIRECTORY)
            self._wake.set()

    def _note(self, partition: Partition) -> None:
        key = _key(partition)
        home = self._partitions.home(partition)
        assigned = self._assigned(key)
        if assigned is None or key in self._due:
            return
        if assigned != home.directory_id:
            # One that could not be opened, and can be now, has the records that it had.
            kept_records = assigned == LOST_DIRECTORY and partition.name in self._partitions.whole
            self._due[key] = Report(home.directory_id, kept_records)
            self._wake.set()

    def _note_failed(self, directory: LogDirectory) -> None:
        """The controller must take a failed directory's replicas for offline, whatever was reported before."""
        for name in sorted(directory.partitions):
            partition = self._partitions.get(*name)
            if partition is None:
                continue
            key = _key(partition)
            if key in self._due:
                self._answer(key, False)
                self._due[key] = Report(directory.directory_id)
            else:
                self._note(partition)

    async def _run(self) -> None:
        self._asked = {}
        while True:
            for key in list(self._recorded):
                self._assigned(key)
            while self._due:
                self._asked = dict(islice(self._due.items(), PER_REQUEST_MAX))
                is_settled = await self._report(self._asked)
                self._asked = {}
                if is_settled:
                    self._failures = 0
                else:
                    self._failures += 1
                    pause_ms = pause_after(self._failures + 1, BACKOFF_FIRST_MS, BACKOFF_MAX_MS)
                    await asyncio.sleep(pause_ms / 1000)
            await self._wake.wait()
            self._wake.clear()

    async def _report(self, rows: dict[Key, Report]) -> bool:
        """Send reports; False if some of them must be sent again."""
        try:
            response: AssignReplicasToDirsResponse = await self._ask(self._request(rows))
        except ApiError as error:
            logger.warning("the controller was not told where replicas are, trying again: %s", error.message)
            return False
        if response.error_code:
            logger.warning("the controller refused to note replicas: %s", ErrorCode(response.error_code).name)
            return False
        is_settled = True
        for directory in response.directories:
            for topic in directory.topics:
                for row in topic.partitions:
                    key, code = (topic.topic_id, row.partition_index), ErrorCode(row.error_code)
                    if code is ErrorCode.INVALID_UPDATE_VERSION:
                        is_settled = False
                    else:
                        self._settle(key, rows.get(key), code)
        return is_settled

    def _settle(self, key: Key, report: Report | None, error: ErrorCode) -> None:
        if report is not None and error is ErrorCode.NONE and (key in self._due or key in self._seen):
            self._recorded[key] = report.directory_id
        if self._due.get(key) != report:
            # The replica has moved on meanwhile.
            return
        del self._due[key]
        if error is not ErrorCode.NONE:
            logger.info("the controller does not note the directory of partition %d: %s", key[1], error.name)
        self._answer(key, error is ErrorCode.NONE)

    def _answer(self, key: Key, is_noted: bool) -> None:
        waiter = self._waiters.pop(key, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(is_noted)

    def _request(self, rows: dict[Key, Report]) -> AssignReplicasToDirsRequest:
        directories: dict[Uuid, dict[Uuid, list[AssignReplicasToDirsRequestPartitionData]]] = {}
        for (topic_id, index), report in rows.items():
            topics = directories.setdefault(report.directory_id, {})
            state = self._partitions.state_of("", topic_id, index, by_id=True)
            epoch = state.partition_epoch if state is not None else -1
            row = AssignReplicasToDirsRequestPartitionData(index, report.kept_records, epoch)
            topics.setdefault(topic_id, []).append(row)
        return AssignReplicasToDirsRequest(
            self._partitions.node_id,
            self._broker_epoch(),
            [
                AssignReplicasToDirsRequestDirectoryData(
                    directory_id,
                    [AssignReplicasToDirsRequestTopicData(topic_id, found) for topic_id, found in topics.items()],
                )
                for directory_id, topics in directories.items()
            ],
        )


def _key(partition: Partition) -> Key:
    return partition.topic_id, partition.name.partition
