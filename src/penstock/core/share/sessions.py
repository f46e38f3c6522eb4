"""Share sessions (KIP-932): the partitions that a member fetches, so that it names only what changes.

The first request has epoch 0 and makes a session; each further request has the epoch after that of the one before it;
-1 ends the session. A session belongs to a connection and ends with it.

Places are few, and owners share them, where it is known who they are: each may have as many as it leaves free. So one
alone takes half of them at most, the next one half of the rest, and none keeps all others out. The memory that the
partitions of sessions take is shared in the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import Uuid

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 2**31 - 1
BYTES_MAX = 32 * 1024 * 1024
# What a session and each of its partitions hold in memory, names aside.
SESSION_BYTES = 1_000
PARTITION_BYTES = 300


class TopicIdPartition(NamedTuple):
    """A partition by its topic's id."""

    topic_id: Uuid
    partition: int


class ShareSession:
    """One member's session; `partitions` are in the order in which they were added."""

    __slots__ = ("epoch", "group", "member", "on_ended", "owner", "partitions", "size_bytes")

    def __init__(
        self, group: str, member: str, partitions: Iterable[TopicIdPartition], owner: str | None = None
    ) -> None:
        self.group = group
        self.member = member
        self.owner = owner
        self.epoch = _after(INITIAL_EPOCH)
        self.partitions = dict.fromkeys(partitions)
        self.size_bytes = SESSION_BYTES + len(group) + len(member) + PARTITION_BYTES * len(self.partitions)
        # Called once, when the session ends or another one of its member takes its place.
        self.on_ended: Callable[[], None] | None = None

    def in_turn(self) -> list[TopicIdPartition]:
        """The partitions, beginning with another one each time, so that none is served last for ever."""
        places = [*self.partitions]
        first = self.epoch % len(places) if places else 0
        return places[first:] + places[:first]


class Places:
    """How many places there are and how much memory for them, and who has how much of either."""

    def __init__(self, places_max: int, bytes_max: int = BYTES_MAX) -> None:
        self.places_max = places_max
        self._bytes_max = bytes_max
        self._taken: Counter[str | None] = Counter()
        self._bytes: Counter[str | None] = Counter()
        self._taken_total = self._bytes_total = 0

    def has_room(self, owner: str | None, size_bytes: int) -> bool:
        """Whether an owner may have one more; None is an unknown owner, with whom no other has to share."""
        free = self.places_max - self._taken_total
        return free > (0 if owner is None else self._taken[owner]) and self.has_memory(owner, size_bytes)

    def has_memory(self, owner: str | None, size_bytes: int) -> bool:
        """Whether the memory of an owner's sessions may grow by so much."""
        free = self._bytes_max - self._bytes_total - size_bytes
        return free >= (0 if owner is None else self._bytes[owner] + size_bytes)

    def take(self, owner: str | None, size_bytes: int) -> None:
        """Count one more session of an owner."""
        self._taken[owner] += 1
        self._taken_total += 1
        assert self._taken[owner] <= self._taken_total <= self.places_max
        self.resize(owner, size_bytes)

    def resize(self, owner: str | None, growth_bytes: int) -> None:
        """Count that the memory of an owner's sessions grows, or shrinks."""
        assert self._bytes[owner] + growth_bytes >= 0
        self._bytes[owner] += growth_bytes
        self._bytes_total += growth_bytes
        assert self._bytes_total >= self._bytes[owner], "an owner has no more than all"

    def free(self, owner: str | None, size_bytes: int) -> None:
        """Count one session less of an owner."""
        self._taken[owner] -= 1
        self._taken_total -= 1
        self.resize(owner, -size_bytes)
        assert self._taken[owner] >= 0
        assert self._taken_total >= self._taken[owner]
        if not self._taken[owner]:
            assert not self._bytes[owner]
            del self._taken[owner], self._bytes[owner]


class ShareSessions:
    """All sessions of a broker; `sessions_max` is `group.share.max.share.sessions`."""

    def __init__(self, sessions_max: int, bytes_max: int = BYTES_MAX) -> None:
        self._places = Places(sessions_max, bytes_max)
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._groups: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._sessions)

    def fetch(
        self,
        group: str,
        member: str,
        epoch: int,
        added: Sequence[TopicIdPartition],
        forgotten: Iterable[TopicIdPartition],
        owner: str | None = None,
    ) -> ShareSession:
        """The session of a ShareFetch, made or brought up to date; raises ApiError for an epoch out of turn."""
        if epoch != INITIAL_EPOCH:
            session = self.acknowledge(group, member, epoch)
            if epoch != FINAL_EPOCH:
                self._update(session, added, forgotten)
            return session
        former = self._sessions.get((group, member))
        session = ShareSession(group, member, added, owner)
        is_own = former is not None and former.owner == owner
        if not is_own and not self._places.has_room(owner, session.size_bytes):
            raise ApiError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"this broker has no room for another share session of yours, and for {self._places.places_max} in "
                "all; see group.share.max.share.sessions",
            )
        if former is not None:
            growth_bytes = session.size_bytes - former.size_bytes
            if is_own and growth_bytes > 0 and not self._places.has_memory(owner, growth_bytes):
                raise _too_many_partitions()
            self.end(former)
        self._places.take(owner, session.size_bytes)
        self._groups[group] += 1
        self._sessions[group, member] = session
        assert session.epoch == _after(INITIAL_EPOCH)
        assert len(self._sessions) >= len(self._groups), "a group is known by its sessions"
        return session

    def _update(
        self, session: ShareSession, added: Sequence[TopicIdPartition], forgotten: Iterable[TopicIdPartition]
    ) -> None:
        new = {place for place in added if place not in session.partitions}
        if new and not self._places.has_memory(session.owner, PARTITION_BYTES * len(new)):
            raise _too_many_partitions()
        before = len(session.partitions)
        session.partitions.update(dict.fromkeys(added))
        for place in forgotten:
            session.partitions.pop(place, None)
        growth_bytes = PARTITION_BYTES * (len(session.partitions) - before)
        assert session.size_bytes + growth_bytes >= SESSION_BYTES
        session.size_bytes += growth_bytes
        self._places.resize(session.owner, growth_bytes)

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
            assert 0 < session.epoch <= EPOCH_MAX, "epochs of a session skip 0 and -1"
        return session

    def end(self, session: ShareSession) -> bool:
        """A session ends; False if it had already, or the member has a later one."""
        key = (session.group, session.member)
        if self._sessions.get(key) is not session:
            return False
        del self._sessions[key]
        assert self._groups[session.group] > 0
        self._groups[session.group] -= 1
        if not self._groups[session.group]:
            del self._groups[session.group]
        self._places.free(session.owner, session.size_bytes)
        if session.on_ended is not None:
            session.on_ended()
            session.on_ended = None
        return True

    def has_group(self, group: str) -> bool:
        """Whether any member of a group has a session here."""
        return group in self._groups


class SessionlessMembers:
    """Members that take records without a session. Each counts for `PRESENT_MS` after it last asked for some."""

    PRESENT_MS = 5 * 60_000

    def __init__(self, takers_max: int) -> None:
        self._places = Places(takers_max)
        self._groups: Counter[str] = Counter()
        # Who asked last for each of them, and when.
        self._seen: dict[tuple[str, str], tuple[str | None, int]] = {}

    def seen(self, group: str, member: str, now_ms: int, owner: str | None = None) -> None:
        """A member requests records; raises ApiError if there are too many."""
        known = self._seen.get((group, member))
        size_bytes = _taker_bytes(group, member)
        if known is None and not self._places.has_room(owner, size_bytes):
            self.forget(now_ms)
            if not self._places.has_room(owner, size_bytes):
                raise ApiError(
                    ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                    "this broker has no room for another member of yours that takes records, and for "
                    f"{self._places.places_max} in all; see group.share.max.share.sessions",
                )
        if known is not None:
            self._places.free(known[0], size_bytes)
        else:
            self._groups[group] += 1
        self._places.take(owner, size_bytes)
        assert self._groups[group] > 0
        self._seen[group, member] = owner, now_ms

    def forget(self, now_ms: int) -> None:
        """Members whose last request was too long ago no longer count."""
        for key, (owner, seen_ms) in [*self._seen.items()]:
            if now_ms - seen_ms >= self.PRESENT_MS:
                del self._seen[key]
                assert self._groups[key[0]] > 0
                self._groups[key[0]] -= 1
                if not self._groups[key[0]]:
                    del self._groups[key[0]]
                self._places.free(owner, _taker_bytes(*key))

    def has_group(self, group: str) -> bool:
        """Whether any member of a group counts."""
        return group in self._groups


def _taker_bytes(group: str, member: str) -> int:
    return SESSION_BYTES + len(group) + len(member)


def _too_many_partitions() -> ApiError:
    return ApiError(
        ErrorCode.SHARE_SESSION_LIMIT_REACHED, "this broker has no memory for more partitions in your share sessions"
    )


def _after(epoch: int) -> int:
    return 1 if epoch == EPOCH_MAX else epoch + 1
