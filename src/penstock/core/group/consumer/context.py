"""What every request to a consumer group needs: settings, topics, and the timers of members.

Timers: ("consumer-session", group, member) removes a member that stops sending heartbeats; ("consumer-rebalance", …)
one that does not revoke its partitions in time. Members that use the classic protocol have ("consumer-join", …) and
("consumer-sync", …) instead of the latter: they rebalance with JoinGroup and SyncGroup.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.core.group.consumer.group import ConsumerGroup
from penstock.core.group.contract import Effects, GroupSettings, Timer, TimerKey
from penstock.core.group.group import Random
from penstock.core.group.subscription.topics import TopicCatalog
from penstock.core.kept_bytes import KeptBytes
from penstock.model.ids import format_uuid

SESSION_TIMER = "consumer-session"
REBALANCE_TIMER = "consumer-rebalance"
JOIN_TIMER = "consumer-join"
SYNC_TIMER = "consumer-sync"

_SESSION_TIMEOUT = "consumer.session.timeout.ms"
_HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"


class ConsumerContext:
    """Shared by everything that serves the consumer groups of one shard."""

    def __init__(
        self,
        settings: GroupSettings,
        catalog: TopicCatalog,
        random: Random,
        configs: Callable[[str], Mapping[str, str]],
        kept: KeptBytes,
    ) -> None:
        self.settings = settings
        self.kept = kept
        self.catalog = catalog
        self._random = random
        self._configs = configs

    def session_timeout_ms(self, group_id: str) -> int:
        """The session timeout of a group: its own setting within the broker's bounds, or the broker's."""
        return self.settings.consumer_session_timeout_ms.of(self._configs(group_id).get(_SESSION_TIMEOUT))

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """The heartbeat interval of the group's members."""
        return self.settings.consumer_heartbeat_interval_ms.of(self._configs(group_id).get(_HEARTBEAT_INTERVAL))

    def new_member_id(self) -> str:
        """A random id in the form of Kafka's uuids; none starts with a dash, which would look like an option."""
        while True:
            member_id = format_uuid(self._random.getrandbits(128).to_bytes(16, "big"))
            if not member_id.startswith("-"):
                return member_id


def timer_key(kind: str, group_id: str, member_id: str) -> TimerKey:
    """The key of a member's timer."""
    return (kind, group_id, member_id)


def keep_session(group: ConsumerGroup, member_id: str, timeout_ms: int, effects: Effects, now_ms: int) -> None:
    """Restart a member's session timeout."""
    effects.timers.append(Timer(timer_key(SESSION_TIMER, group.group_id, member_id), now_ms + timeout_ms))


def await_join(group: ConsumerGroup, member_id: str, timeout_ms: int, effects: Effects, now_ms: int) -> None:
    """Start the time that a classic member has to rejoin, counted from the first time it was told to."""
    if member_id not in group.awaited_joins:
        group.awaited_joins.add(member_id)
        effects.timers.append(Timer(timer_key(JOIN_TIMER, group.group_id, member_id), now_ms + timeout_ms))


def cancel_timer(kind: str, group: ConsumerGroup, member_id: str, effects: Effects) -> None:
    """Cancel a timer, if it was set."""
    if kind == JOIN_TIMER:
        group.awaited_joins.discard(member_id)
    effects.timers.append(Timer(timer_key(kind, group.group_id, member_id), None))


def cancel_timers(group: ConsumerGroup, member_id: str, effects: Effects) -> None:
    """Cancel all timers of a member that has left."""
    for kind in (SESSION_TIMER, REBALANCE_TIMER, JOIN_TIMER, SYNC_TIMER):
        cancel_timer(kind, group, member_id, effects)
