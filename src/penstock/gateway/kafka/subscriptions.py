"""Delivers records one at a time to a group's callers, with acknowledgements.

All callers of a group and topic share one group member of this gateway; members of other gateways share the
partitions with it. A record that is not acknowledged in time is delivered again. The committed offset is the one below
which everything has been acknowledged.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

from penstock.gateway.kafka.consumer_instances import ConsumerInstances, Instance
from penstock.gateway.kafka.records import ReadRecord
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.web.problem import Problem

ACK_TIMEOUT_S = 30.0
FETCH_MAX = 100
FETCH_BYTES_MAX = 1024 * 1024
STEP_S = 1.0


@dataclass(slots=True)
class _Partition:
    """The unacknowledged records of a partition by offset with their redelivery time, and the next offset."""

    leased: dict[int, tuple[ReadRecord, float]] = field(default_factory=dict)
    leased_bytes: int = 0
    next_offset: int = -1

    def commit_offset(self) -> int:
        """The offset below which everything is acknowledged."""
        return min(self.leased, default=self.next_offset)

    def lease(self, record: ReadRecord, deadline: float) -> None:
        """Deliver a record, for the first time or again."""
        self.release(record.offset)
        self.leased[record.offset] = (record, deadline)
        self.leased_bytes += record.size
        self.next_offset = max(self.next_offset, record.offset + 1)

    def release(self, offset: int) -> None:
        """A record is no longer leased."""
        found = self.leased.pop(offset, None)
        if found is not None:
            self.leased_bytes -= found[0].size


@dataclass(slots=True)
class _Subscription:
    instance: Instance
    waiting: deque[ReadRecord] = field(default_factory=deque)
    partitions: dict[int, _Partition] = field(default_factory=dict)


class Subscriptions:
    """The groups that callers of this gateway read with."""

    def __init__(self, instances: ConsumerInstances, settings: GatewaySettings) -> None:
        self._instances = instances
        self._settings = settings
        self._subscriptions: dict[tuple[str, str], _Subscription] = {}
        instances.on_remove = self._forget

    async def next(self, group: str, topic: str, reset: str, timeout_s: float, caller: str) -> ReadRecord | None:
        """The group's next record; None if none arrived in time. `reset` is where a new group starts."""
        subscription = await self._subscription(group, topic, reset, caller)
        deadline = time.monotonic() + timeout_s
        while True:
            due = self._due(subscription)
            record = due or (subscription.waiting.popleft() if subscription.waiting else None)
            if record is not None:
                # Leased at once, so that no other request gets it meanwhile; if it is refused, it comes again later.
                self._lease(subscription, record)
                await self._instances.check_readable([record])
                return record
            self._check_leases(subscription)
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return None
            fetched = await self._instances.use(
                subscription.instance,
                lambda consumer: consumer.poll(FETCH_MAX, FETCH_BYTES_MAX, min(STEP_S, left_s)),  # noqa: B023
            )
            self._forget_revoked(subscription)
            subscription.waiting.extend(fetched)

    async def acknowledge(self, group: str, topic: str, partition: int, offset: int) -> bool:
        """Acknowledge a record and commit; False if this gateway did not deliver it."""
        subscription = self._subscriptions.get((group, topic))
        if subscription is None or self._instances.get(group, _name(topic)) is not subscription.instance:
            return False
        self._forget_revoked(subscription)
        state = subscription.partitions.get(partition)
        if state is None or offset >= state.next_offset:
            return False
        state.release(offset)
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
        state.lease(record, time.monotonic() + ACK_TIMEOUT_S)
        return record

    def _check_leases(self, subscription: _Subscription) -> None:
        """429 if too many records are unacknowledged."""
        states, limits = subscription.partitions.values(), self._settings
        records, size = sum(len(state.leased) for state in states), sum(state.leased_bytes for state in states)
        too_many, too_long = records >= limits.unacknowledged_records_max, size >= limits.unacknowledged_bytes_max
        if too_many or too_long:
            name = "unacknowledged_records_max" if too_many else "unacknowledged_bytes_max"
            raise Problem(
                429,
                42901,
                f"{records:,} messages of {size:,} bytes are unacknowledged (the limit {name})",
                f"acknowledge them; they are delivered again after {ACK_TIMEOUT_S:g} s",
                headers={"Retry-After": "1"},
            )

    def _forget(self, instance: Instance) -> None:
        """Drop the leases of a removed group member."""
        key = (instance.group, instance.name.removeprefix("/"))
        known = self._subscriptions.get(key)
        if known is not None and known.instance is instance:
            del self._subscriptions[key]

    @staticmethod
    def _due(subscription: _Subscription) -> ReadRecord | None:
        """The first record whose acknowledgement is overdue."""
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
        """Drop the leases of revoked partitions, which another member reads now."""
        revoked, subscription.instance.consumer.revoked = subscription.instance.consumer.revoked, []
        gone = {partition for _, partition in revoked}
        if gone:
            for partition in gone:
                subscription.partitions.pop(partition, None)
            subscription.waiting = deque(record for record in subscription.waiting if record.partition not in gone)


def _name(topic: str) -> str:
    """The instance of a group that serves single deliveries; callers cannot choose such a name."""
    return f"/{topic}"
