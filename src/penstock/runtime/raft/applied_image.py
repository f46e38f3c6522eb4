"""The image of the metadata log's committed part, and the listeners for its changes.

Entries are replayed a slice at a time, so that a node that has much to catch up with still answers its peers. A batch
is never split: the image contains all of a batch or nothing of it.

Every listener gets every batch, whatever another one does. One that raises an exception gets nothing more until, after
a pause, it has processed what it missed and the whole image: records are idempotent, and the result depends on the
image alone. A batch that cannot be replayed leaves an image that is neither the one before nor the one after it: then
the node cannot continue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from penstock.core.backoff import Backoff
from penstock.core.metadata.image import Image
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.raft.control_records import Control
from penstock.runtime.raft.metadata_files import Batch
from penstock.runtime.raft.metadata_log import MetadataLog
from penstock.runtime.replication.commit_waiters import CommitWaiters
from penstock.wire.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)

# Between attempts of a listener that failed.
RETRY_FIRST_S = 0.5
RETRY_MAX_S = 30.0
# Replaying this many records takes a few milliseconds; then other work gets its turn.
RECORDS_PER_TURN = 2_000

# Records of which an image contains what follows from them.
RESTATED = (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
)

Listener = Callable[[Sequence[Any]], None]


class _Subscription:
    """A listener, and what it has missed since it failed."""

    def __init__(self, listener: Listener, image: Image) -> None:
        self._listener = listener
        self._image = image
        self._backoff = Backoff(RETRY_FIRST_S, RETRY_MAX_S)
        self._missed: list[Any] = []
        self._retry: asyncio.TimerHandle | None = None

    def tell(self, records: Sequence[Any]) -> None:
        if self._retry is not None or not self._succeeds(records):
            # The image has the rest.
            self._missed += (record for record in records if not isinstance(record, RESTATED))

    def close(self) -> None:
        if self._retry is not None:
            self._retry.cancel()

    def _succeeds(self, records: Sequence[Any]) -> bool:
        try:
            self._listener(records)
        except Exception as error:  # noqa: BLE001 - one listener must not keep the image from all others
            loop = asyncio.get_running_loop()
            text = f"{self._listener} could not process a change of the metadata, and does so again later"
            loop.call_exception_handler({"message": text, "exception": error})
            self._retry = loop.call_later(self._backoff.failed(), self._catch_up)
            return False
        self._backoff.succeeded()
        return True

    def _catch_up(self) -> None:
        self._retry = None
        if self._succeeds([*self._missed, *self._image.snapshot()]):
            self._missed.clear()


class AppliedImage:
    """One image for the life of the process, changed in place."""

    def __init__(self) -> None:
        self.image = Image()
        self.applied_offset = 0
        self.bytes_since_snapshot = 0
        self._subscriptions: list[_Subscription] = []
        # Futures that wait for the image, and those that wait for what this node appended as leader.
        self._followers = CommitWaiters()
        self._leaders = CommitWaiters()

    def on_commit(self, listener: Listener) -> None:
        """Have `listener` called with every batch of records once it is in the image."""
        self._subscriptions.append(_Subscription(listener, self.image))

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
        for subscription in self._subscriptions:
            subscription.close()
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
        for subscription in self._subscriptions:
            subscription.tell(records)


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
