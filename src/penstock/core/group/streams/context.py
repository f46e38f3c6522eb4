"""What every request to a streams group needs: settings, topics, and timers.

Timers: ("streams-session", group, member) removes a member that stops sending heartbeats; ("streams-rebalance", …) one
that does not revoke its tasks in time; ("streams-initial", group) ends the wait for more members of a new group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from penstock.core.group.contract import Effects, GroupSettings, Timer
from penstock.core.group.streams.group import StreamsGroup
from penstock.core.group.subscription.topics import TopicCatalog
from penstock.core.kept_bytes import KeptBytes

STREAMS_SESSION_TIMER = "streams-session"
STREAMS_REBALANCE_TIMER = "streams-rebalance"
STREAMS_INITIAL_TIMER = "streams-initial"
STREAMS_TIMERS = (STREAMS_SESSION_TIMER, STREAMS_REBALANCE_TIMER, STREAMS_INITIAL_TIMER)

_SESSION_TIMEOUT = "streams.session.timeout.ms"
_HEARTBEAT_INTERVAL = "streams.heartbeat.interval.ms"
_INITIAL_DELAY = "streams.initial.rebalance.delay.ms"
_ASSIGNMENT_INTERVAL = "streams.assignment.interval.ms"
_STANDBY_REPLICAS = "streams.num.standby.replicas"
# How the number of standbys is called in the group's record.
STANDBY_REPLICAS_CONFIG = "num.standby.replicas"


class StreamsContext(NamedTuple):
    """Shared by everything that serves the streams groups of one shard."""

    settings: GroupSettings
    catalog: TopicCatalog
    configs: Callable[[str], Mapping[str, str]]
    kept: KeptBytes

    def session_timeout_ms(self, group_id: str) -> int:
        """The session timeout of a group: its own setting within the broker's bounds, or the broker's."""
        return self.settings.streams_session_timeout_ms.of(self.configs(group_id).get(_SESSION_TIMEOUT))

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """The heartbeat interval of the group's members."""
        return self.settings.streams_heartbeat_interval_ms.of(self.configs(group_id).get(_HEARTBEAT_INTERVAL))

    def assignment_interval_ms(self, group_id: str) -> int:
        """How long a target assignment stands before the next is computed."""
        return self.settings.streams_assignment_interval_ms.of(self.configs(group_id).get(_ASSIGNMENT_INTERVAL))

    def initial_delay_ms(self, group_id: str) -> int:
        """How long a group that was empty waits for more members before its first assignment."""
        own = self.configs(group_id).get(_INITIAL_DELAY)
        return self.settings.streams_initial_rebalance_delay_ms if own is None else int(own)

    def assignment_configs(self, group_id: str) -> dict[str, str]:
        """The settings that an assignment depends on, as the group's record names them."""
        replicas = self.settings.streams_num_standby_replicas.of(self.configs(group_id).get(_STANDBY_REPLICAS))
        return {STANDBY_REPLICAS_CONFIG: str(replicas)}

    def keep_session(self, group: StreamsGroup, member_id: str, effects: Effects, now_ms: int) -> None:
        """Restart a member's session timeout."""
        deadline_ms = now_ms + self.session_timeout_ms(group.group_id)
        effects.timers.append(Timer((STREAMS_SESSION_TIMER, group.group_id, member_id), deadline_ms))


def await_revocation(group_id: str, member_id: str, deadline_ms: int | None, effects: Effects) -> None:
    """Set the time by which a member must have revoked its tasks; None if it has."""
    effects.timers.append(Timer((STREAMS_REBALANCE_TIMER, group_id, member_id), deadline_ms))


def cancel_timers(group_id: str, member_id: str, effects: Effects) -> None:
    """Cancel all timers of a member that has left."""
    effects.timers.append(Timer((STREAMS_SESSION_TIMER, group_id, member_id), None))
    await_revocation(group_id, member_id, None, effects)
