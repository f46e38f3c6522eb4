"""What every request to a share group needs: settings, topics, and the timers of members.

The timer ("share-session", group, member) removes a member that stops sending heartbeats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from penstock.core.group.contract import Effects, GroupSettings, Timer, TimerKey
from penstock.core.group.share.group import ShareGroup
from penstock.core.group.subscription.topics import TopicCatalog
from penstock.core.kept_bytes import KeptBytes

SHARE_SESSION_TIMER = "share-session"

_SESSION_TIMEOUT = "share.session.timeout.ms"
_HEARTBEAT_INTERVAL = "share.heartbeat.interval.ms"


class ShareContext(NamedTuple):
    """Shared by everything that serves the share groups of one shard."""

    settings: GroupSettings
    catalog: TopicCatalog
    configs: Callable[[str], Mapping[str, str]]
    kept: KeptBytes

    def session_timeout_ms(self, group_id: str) -> int:
        """The session timeout of a group: its own setting within the broker's bounds, or the broker's."""
        return self.settings.share_session_timeout_ms.of(self.configs(group_id).get(_SESSION_TIMEOUT))

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """The heartbeat interval of the group's members."""
        return self.settings.share_heartbeat_interval_ms.of(self.configs(group_id).get(_HEARTBEAT_INTERVAL))

    def keep_session(self, group: ShareGroup, member_id: str, effects: Effects, now_ms: int) -> None:
        """Restart a member's session timeout."""
        deadline_ms = now_ms + self.session_timeout_ms(group.group_id)
        effects.timers.append(Timer(session_key(group, member_id), deadline_ms))


def session_key(group: ShareGroup, member_id: str) -> TimerKey:
    """The key of a member's timer."""
    return (SHARE_SESSION_TIMER, group.group_id, member_id)
