"""The image of the metadata log's committed part, and the listeners for its changes.

Entries are replayed a slice at a time, so that a node that has much to catch up with still answers its peers. A batch
is never split: the image contains all of a batch or nothing of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from penstock.core.metadata.image import Image
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.raft.control_records import Control
from penstock.runtime.raft.metadata_files import Batch
from penstock.runtime.raft.metadata_log import MetadataLog
from penstock.runtime.replication.commit_waiters import CommitWaiters
from penstock.wire.messages.metadata_records import ConfigRecord, RemoveTopicRecord, UnregisterBrokerRecord

# Replaying this many records takes a few milliseconds; then other work gets its turn.
RECORDS_PER_TURN = 2_000

Listener = Callable[[Sequence[Any]], None]


class AppliedImage:
    """One image for the life of the process, changed in place."""

    def __init__(self) -> None:
        self.image = Image()
        self.applied_offset = 0
        self.bytes_since_snapshot = 0
        self._listeners: list[Listener] = []
        # Futures that wait for the image, and those that wait for what this node appended as leader.
        self._followers = CommitWaiters()
        self._leaders = CommitWaiters()

    def on_commit(self, listener: Listener) -> None:
        """Have `listener` called with every batch of records once it is in the image."""
        self._listeners.append(listener)

    def reached(self, offset: int) -> asyncio.Future[None]:
        """Completes when everything before `offset` is in the image, on leader and followers alike."""
        return self._wait(self._followers, offset)

    def committed(self, offset: int) -> asyncio.Future[None]:
        """The same, but fails when this node loses leadership."""
        return self._wait(self._leaders, offset)

    def _wait(self, waiters: CommitWaiters, offset: int) -> asyncio.Future[None]:
        if self.applied_offset < offset:
            return waiters.wait(offset, sync=False)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future

    def leadership_lost(self) -> None:
        """This node is not the leader: what it appended when it was may be committed or not."""
        if self._leaders.waiting:
            text = "this node is no longer the active controller; try again"
            self._leaders.fail(ApiError(ErrorCode.NOT_CONTROLLER, text))

    def fail(self, error: ApiError) -> None:
        """Nothing more will come."""
        self._leaders.fail(error)
        self._followers.fail(error)

    def load(self, batches: Iterable[Batch], offset: int) -> list[Control]:
        """Start with a snapshot that ends at `offset`; no listener is called. Returns its control records."""
        controls = replay_all(self.image, batches)
        self.applied_offset = offset
        return controls

    def apply(self, log: MetadataLog, committed: int, *, everything: bool = False) -> bool:
        """Replay committed entries, a slice of them or everything; False when some are left."""
        count = 0
        try:
            while self.applied_offset < committed and (everything or count < RECORDS_PER_TURN):
                for batch in log.batches(self.applied_offset, committed):
                    self._apply(batch)
                    count += len(batch.records)
                    if count >= RECORDS_PER_TURN and not everything:
                        break
        finally:
            # Whatever a listener does, the change is committed.
            self._release()
        return self.applied_offset >= committed

    def _release(self) -> None:
        for waiters in (self._leaders, self._followers):
            for _, _, future in waiters.take(self.applied_offset):
                if not future.done():
                    future.set_result(None)

    def _apply(self, batch: Batch) -> None:
        for record in batch.records:
            self.image.replay(record)
        self.applied_offset = batch.next_offset
        self.bytes_since_snapshot += batch.size_bytes
        if batch.records:
            self._tell(batch.records)

    def replace(self, fresh: Image, offset: int) -> None:
        """Replace the image by a leader's snapshot; listeners get the removals and then everything."""
        image = self.image
        gone = differences(image, fresh)
        image.become(fresh)
        self.applied_offset = offset
        self.bytes_since_snapshot = 0
        self._tell([*gone, *image.snapshot()])
        self._release()

    def _tell(self, records: Sequence[Any]) -> None:
        for listener in self._listeners:
            listener(records)


def replay_all(image: Image, batches: Iterable[Batch]) -> list[Control]:
    """Replay the records of batches into an image; returns their control records."""
    controls: list[Control] = []
    for batch in batches:
        controls += batch.controls
        for record in batch.records:
            image.replay(record)
    return controls


def differences(old: Image, new: Image) -> list[Any]:
    """The records that remove what the new image no longer has."""
    gone: list[Any] = [RemoveTopicRecord(topic_id=topic) for topic in old.topics_by_id if topic not in new.topics_by_id]
    gone += [
        UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.registration.broker_epoch)
        for broker in old.brokers.values()
        if broker.broker_id not in new.brokers
    ]
    for (kind, name), settings in old.configs.items():
        kept = new.configs.get((kind, name), {})
        gone += [ConfigRecord(kind, name, key, None) for key in settings if key not in kept]
    gone += old.security.differences(new.security)
    gone += old.links.differences(new.links)
    return gone
