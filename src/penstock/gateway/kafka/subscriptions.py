"""Delivery of one record at a time to the callers of a group, with acknowledgements.

All callers of a group and topic share one group member of this gateway; members of other gateways share the
partitions with it. A record that is handed out and not acknowledged in time is handed out again. What is committed is
the offset below which everything has been acknowledged.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

from penstock.gateway.kafka.instances import Instance, Instances
from penstock.gateway.kafka.records import ReadRecord
from penstock.gateway.settings import GatewaySettings

ACK_TIMEOUT_S = 30.0
FETCH_MAX = 100
STEP_S = 1.0


@dataclass(slots=True)
class _Partition:
    """What was handed out of a partition: records by offset with the time they are due again, and the highest."""

    leased: dict[int, tuple[ReadRecord, float]] = field(default_factory=dict)
    next_offset: int = -1

    def commit_offset(self) -> int:
        """Everything below this is acknowledged."""
        return min(self.leased, default=self.next_offset)


@dataclass(slots=True)
class _Subscription:
    instance: Instance
    waiting: deque[ReadRecord] = field(default_factory=deque)
    partitions: dict[int, _Partition] = field(default_factory=dict)


class Subscriptions:
    """The groups that callers of this gateway read with."""

    def __init__(self, instances: Instances, settings: GatewaySettings) -> None:
        self._instances = instances
        self._settings = settings
        self._subscriptions: dict[tuple[str, str], _Subscription] = {}

    async def next(self, group: str, topic: str, reset: str, timeout_s: float, caller: str) -> ReadRecord | None:
        """The next record of the group's; None when none came in time. `reset` is where a new group starts."""
        subscription = await self._subscription(group, topic, reset, caller)
        deadline = time.monotonic() + timeout_s
        while True:
            record = self._due(subscription) or (subscription.waiting.popleft() if subscription.waiting else None)
            if record is not None:
                return self._lease(subscription, record)
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return None
            fetched = await self._instances.use(
                subscription.instance,
                lambda consumer: consumer.poll(FETCH_MAX, self._settings.read_bytes_max, min(STEP_S, left_s)),  # noqa: B023
            )
            self._forget_revoked(subscription)
            subscription.waiting.extend(fetched)

    async def acknowledge(self, group: str, topic: str, partition: int, offset: int) -> bool:
        """Count a record as done and commit; False where this gateway did not hand it out."""
        subscription = self._subscriptions.get((group, topic))
        if subscription is None or self._instances.get(group, _name(topic)) is not subscription.instance:
            return False
        self._forget_revoked(subscription)
        state = subscription.partitions.get(partition)
        if state is None or offset >= state.next_offset:
            return False
        state.leased.pop(offset, None)
        committed = state.commit_offset()
        await self._instances.use(
            subscription.instance, lambda consumer: consumer.commit([(topic, partition, committed)])
        )
        return True

    async def _subscription(self, group: str, topic: str, reset: str, caller: str) -> _Subscription:
        known = self._subscriptions.get((group, topic))
        if known is not None and self._instances.get(group, _name(topic)) is known.instance:
            return known
        instance = self._instances.create(group, _name(topic), {}, {"auto.offset.reset": reset}, caller)
        subscription = self._subscriptions[group, topic] = _Subscription(instance)
        await self._instances.use(instance, lambda consumer: consumer.subscribe([topic]))
        return subscription

    def _lease(self, subscription: _Subscription, record: ReadRecord) -> ReadRecord:
        state = subscription.partitions.setdefault(record.partition, _Partition())
        state.leased[record.offset] = (record, time.monotonic() + ACK_TIMEOUT_S)
        state.next_offset = max(state.next_offset, record.offset + 1)
        return record

    @staticmethod
    def _due(subscription: _Subscription) -> ReadRecord | None:
        """The first record that was handed out too long ago."""
        now = time.monotonic()
        due = [
            (deadline, record)
            for state in subscription.partitions.values()
            for record, deadline in state.leased.values()
            if deadline <= now
        ]
        return min(due, key=lambda each: each[0])[1] if due else None

    @staticmethod
    def _forget_revoked(subscription: _Subscription) -> None:
        """Records of partitions that another member has now are its business."""
        revoked, subscription.instance.consumer.revoked = subscription.instance.consumer.revoked, []
        gone = {partition for _, partition in revoked}
        if gone:
            for partition in gone:
                subscription.partitions.pop(partition, None)
            subscription.waiting = deque(record for record in subscription.waiting if record.partition not in gone)


def _name(topic: str) -> str:
    """The instance of a group that serves single deliveries; no caller can name one like this."""
    return f"/{topic}"
