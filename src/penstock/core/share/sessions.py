"""Share sessions (KIP-932): the partitions that a member fetches, so that it names only what changes.

The first request has epoch 0 and makes a session; each further request has the epoch after that of the one before it;
-1 ends the session. A session belongs to a connection and ends with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import Uuid

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 2**31 - 1


class Place(NamedTuple):
    """A partition by its topic's id."""

    topic_id: Uuid
    partition: int


class ShareSession:
    """One member's session; `partitions` are in the order in which they were added."""

    __slots__ = ("epoch", "group", "member", "partitions")

    def __init__(self, group: str, member: str, partitions: Iterable[Place]) -> None:
        self.group = group
        self.member = member
        self.epoch = _after(INITIAL_EPOCH)
        self.partitions = dict.fromkeys(partitions)

    def in_turn(self) -> list[Place]:
        """The partitions, beginning with another one each time, so that none is served last for ever."""
        places = [*self.partitions]
        first = self.epoch % len(places) if places else 0
        return places[first:] + places[:first]


class ShareSessions:
    """All sessions of a broker; `sessions_max` is `group.share.max.share.sessions`."""

    def __init__(self, sessions_max: int) -> None:
        self._sessions_max = sessions_max
        self._sessions: dict[tuple[str, str], ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def fetch(
        self, group: str, member: str, epoch: int, added: Iterable[Place], forgotten: Iterable[Place]
    ) -> ShareSession:
        """The session of a ShareFetch, made or brought up to date; raises ApiError for an epoch out of turn."""
        if epoch != INITIAL_EPOCH:
            session = self.acknowledge(group, member, epoch)
            if epoch != FINAL_EPOCH:
                session.partitions.update(dict.fromkeys(added))
                for place in forgotten:
                    session.partitions.pop(place, None)
            return session
        if (group, member) not in self._sessions and len(self._sessions) >= self._sessions_max:
            raise ApiError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"this broker has {self._sessions_max} share sessions; see group.share.max.share.sessions",
            )
        session = self._sessions[group, member] = ShareSession(group, member, added)
        return session

    def acknowledge(self, group: str, member: str, epoch: int) -> ShareSession:
        """The session of a request that comes after the first; raises ApiError for an epoch out of turn."""
        if epoch == INITIAL_EPOCH:
            raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "a session begins with a fetch")
        session = self._sessions.get((group, member))
        if session is None:
            raise ApiError(ErrorCode.SHARE_SESSION_NOT_FOUND, f"member {member} of {group} has no share session")
        if epoch != FINAL_EPOCH:
            if epoch != session.epoch:
                raise ApiError(
                    ErrorCode.INVALID_SHARE_SESSION_EPOCH, f"the session's epoch is {session.epoch}, not {epoch}"
                )
            session.epoch = _after(epoch)
        return session

    def end(self, session: ShareSession) -> bool:
        """A session ends; False if it had already, or the member has a later one."""
        key = (session.group, session.member)
        if self._sessions.get(key) is not session:
            return False
        del self._sessions[key]
        return True

    def has_group(self, group: str) -> bool:
        """Whether any member of a group has a session here."""
        return any(named == group for named, _ in self._sessions)


class Takers:
    """Members that take records without a session. Each counts for `PRESENT_MS` after it last asked for some."""

    PRESENT_MS = 5 * 60_000

    def __init__(self, takers_max: int) -> None:
        self._takers_max = takers_max
        self._seen_ms: dict[tuple[str, str], int] = {}

    def seen(self, group: str, member: str, now_ms: int) -> None:
        """A member asks for records; raises ApiError if there are too many."""
        if (group, member) not in self._seen_ms and len(self._seen_ms) >= self._takers_max:
            self.forget(now_ms)
            if len(self._seen_ms) >= self._takers_max:
                raise ApiError(
                    ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                    f"{self._takers_max} members take records here; see group.share.max.share.sessions",
                )
        self._seen_ms[group, member] = now_ms

    def forget(self, now_ms: int) -> None:
        """Those that have not asked for long don't count any more."""
        for key in [key for key, seen_ms in self._seen_ms.items() if now_ms - seen_ms >= self.PRESENT_MS]:
            del self._seen_ms[key]

    def has_group(self, group: str) -> bool:
        """Whether any member of a group counts."""
        return any(named == group for named, _ in self._seen_ms)


def _after(epoch: int) -> int:
    return 1 if epoch == EPOCH_MAX else epoch + 1
