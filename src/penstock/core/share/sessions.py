"""Share sessions (KIP-932): the partitions that a member fetches, so that it names only what changes.

The first request has epoch 0 and makes a session; each further request has the epoch after that of the one before it;
-1 ends the session. A session belongs to a connection and ends with it.

Places are few, and owners share them, where it is known who they are: each may have as many as it leaves free. So one
alone takes half of them at most, the next one half of the rest, and nobody keeps all others out.
"""

from __future__ import annotations

from collections import Counter
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

    __slots__ = ("epoch", "group", "member", "owner", "partitions")

    def __init__(self, group: str, member: str, partitions: Iterable[Place], owner: str | None = None) -> None:
        self.group = group
        self.member = member
        self.owner = owner
        self.epoch = _after(INITIAL_EPOCH)
        self.partitions = dict.fromkeys(partitions)

    def in_turn(self) -> list[Place]:
        """The partitions, beginning with another one each time, so that none is served last for ever."""
        places = [*self.partitions]
        first = self.epoch % len(places) if places else 0
        return places[first:] + places[:first]


class Places:
    """How many places there are, and who has how many."""

    def __init__(self, places_max: int) -> None:
        self.places_max = places_max
        self._taken: Counter[str | None] = Counter()

    def has_room(self, owner: str | None) -> bool:
        """Whether somebody may have one more; None is nobody in particular, with whom nobody has to share."""
        free = self.places_max - self._taken.total()
        return free > 0 if owner is None else free > self._taken[owner]

    def take(self, owner: str | None) -> None:
        """Somebody has one more."""
        self._taken[owner] += 1

    def free(self, owner: str | None) -> None:
        """Somebody has one less."""
        self._taken[owner] -= 1
        if not self._taken[owner]:
            del self._taken[owner]


class ShareSessions:
    """All sessions of a broker; `sessions_max` is `group.share.max.share.sessions`."""

    def __init__(self, sessions_max: int) -> None:
        self._places = Places(sessions_max)
        self._sessions: dict[tuple[str, str], ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def fetch(
        self,
        group: str,
        member: str,
        epoch: int,
        added: Iterable[Place],
        forgotten: Iterable[Place],
        owner: str | None = None,
    ) -> ShareSession:
        """The session of a ShareFetch, made or brought up to date; raises ApiError for an epoch out of turn."""
        if epoch != INITIAL_EPOCH:
            session = self.acknowledge(group, member, epoch)
            if epoch != FINAL_EPOCH:
                session.partitions.update(dict.fromkeys(added))
                for place in forgotten:
                    session.partitions.pop(place, None)
            return session
        former = self._sessions.get((group, member))
        if former is None and not self._places.has_room(owner):
            raise ApiError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"this broker has no room for another share session of yours, and for {self._places.places_max} in "
                "all; see group.share.max.share.sessions",
            )
        if former is not None:
            self._places.free(former.owner)
        self._places.take(owner)
        session = self._sessions[group, member] = ShareSession(group, member, added, owner)
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
        self._places.free(session.owner)
        return True

    def has_group(self, group: str) -> bool:
        """Whether any member of a group has a session here."""
        return any(named == group for named, _ in self._sessions)


class Takers:
    """Members that take records without a session. Each counts for `PRESENT_MS` after it last asked for some."""

    PRESENT_MS = 5 * 60_000

    def __init__(self, takers_max: int) -> None:
        self._places = Places(takers_max)
        # Who asked last for each of them, and when.
        self._seen: dict[tuple[str, str], tuple[str | None, int]] = {}

    def seen(self, group: str, member: str, now_ms: int, owner: str | None = None) -> None:
        """A member asks for records; raises ApiError if there are too many."""
        known = self._seen.get((group, member))
        if known is None and not self._places.has_room(owner):
            self.forget(now_ms)
            if not self._places.has_room(owner):
                raise ApiError(
                    ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                    "this broker has no room for another member of yours that takes records, and for "
                    f"{self._places.places_max} in all; see group.share.max.share.sessions",
                )
        if known is not None:
            self._places.free(known[0])
        self._places.take(owner)
        self._seen[group, member] = owner, now_ms

    def forget(self, now_ms: int) -> None:
        """Those that have not asked for long don't count any more."""
        for key, (owner, seen_ms) in [*self._seen.items()]:
            if now_ms - seen_ms >= self.PRESENT_MS:
                del self._seen[key]
                self._places.free(owner)

    def has_group(self, group: str) -> bool:
        """Whether any member of a group counts."""
        return any(named == group for named, _ in self._seen)


def _after(epoch: int) -> int:
    return 1 if epoch == EPOCH_MAX else epoch + 1
